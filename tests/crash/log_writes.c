/* Preloaded into a process, logs what it does to the files of one directory, in order, with all bytes.
 *
 *   LOG_WRITES_OF   the directory        LOG_WRITES_TO   the log
 *
 * A record is a header and `size` bytes:
 *   'w' bytes written at `at` of file `inode`; `durable` if the descriptor is one of O_DSYNC or O_SYNC
 *   't' file `inode` cut or extended to `at` bytes
 *   's' everything of file `inode` is on the disk     'd' the same of the directory
 *   'n' a name now leads to file `inode`              'u' a name is gone
 *
 * A file that was written to is held open for ever, so that its inode number is never given to another.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
    uint64_t inode, at, size;
    uint32_t kind, durable;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char directory[PATH_MAX];
static uint64_t held[4096];
static int held_count;

__attribute__((constructor)) static void begin(void) {
    const char *of = getenv("LOG_WRITES_OF"), *to = getenv("LOG_WRITES_TO");
    if (!of || !to || !realpath(of, directory)) return;
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void append(const void *bytes, size_t size) {
    while (size) {
        long written = syscall(SYS_write, log_fd, bytes, size);
        if (written <= 0) abort();
        bytes = (const char *)bytes + written;
        size -= (size_t)written;
    }
}

static void record(char kind, uint64_t inode, uint64_t at, int durable, const void *bytes, size_t size) {
    struct header header = {inode, at, size, (uint32_t)kind, (uint32_t)durable};
    append(&header, sizeof header);
    if (size) append(bytes, size);
}

/* Whether `path` is the directory (1) or a file in it (2). */
static int inside(const char *path) {
    size_t size = strlen(directory);
    if (log_fd < 0 || strncmp(path, directory, size)) return 0;
    return path[size] == 0 ? 1 : path[size] == '/' ? 2 : 0;
}

/* The same of an open descriptor, and its inode. */
static int watched(int fd, uint64_t *inode) {
    char link[64], path[PATH_MAX];
    struct stat status;
    if (log_fd < 0 || fd == log_fd) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || fstat(fd, &status)) return 0;
    path[size] = 0;
    int where = inside(path);
    *inode = status.st_ino;
    if (where == 2 && !S_ISREG(status.st_mode)) return 0;
    return where;
}

static void hold(int fd, uint64_t inode) {
    for (int i = 0; i < held_count; i++)
        if (held[i] == inode) return;
    if (held_count == 4096 || fcntl(fd, F_DUPFD_CLOEXEC, 1000) < 0) abort();
    held[held_count++] = inode;
}

static void wrote(int fd, const struct iovec *parts, int count, off_t at, ssize_t written) {
    uint64_t inode;
    int saved = errno;
    if (written <= 0 || watched(fd, &inode) != 2) {
        errno = saved;
        return;
    }
    int durable = (fcntl(fd, F_GETFL) & (O_DSYNC | O_SYNC)) != 0;
    size_t left = (size_t)written;
    pthread_mutex_lock(&lock);
    hold(fd, inode);
    for (int i = 0; i < count && left; i++) {
        size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
        record('w', inode, (uint64_t)at, durable, parts[i].iov_base, size);
        at += (off_t)size;
        left -= size;
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void simple(char kind, int fd, int result, off_t at) {
    uint64_t inode;
    int saved = errno, where = result ? 0 : watched(fd, &inode);
    if (where) {
        pthread_mutex_lock(&lock);
        if (where == 1) record('d', 0, 0, 0, NULL, 0);
        else record(kind, inode, (uint64_t)at, 0, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

static void named(char kind, const char *path) {
    char parent[PATH_MAX], whole[PATH_MAX];
    struct stat status = {0};
    int saved = errno;
    const char *name = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", name ? (int)(name - path) : 1, name ? path : ".");
    name = name ? name + 1 : path;
    if (realpath(parent, whole) && inside(whole) == 1 && (kind == 'u' || !stat(path, &status))) {
        pthread_mutex_lock(&lock);
        record(kind, status.st_ino, 0, 0, name, strlen(name));
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

#define NEXT(function) \
    static __typeof__(function) *next; \
    if (!next) next = (__typeof__(function) *)dlsym(RTLD_NEXT, #function)

#define PWRITE(function) \
    ssize_t function(int fd, const void *bytes, size_t size, off_t at) { \
        NEXT(function); \
        ssize_t written = next(fd, bytes, size, at); \
        struct iovec part = {(void *)bytes, size}; \
        wrote(fd, &part, 1, at, written); \
        return written; \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(function) \
    ssize_t function(int fd, const struct iovec *parts, int count, off_t at) { \
        NEXT(function); \
        ssize_t written = next(fd, parts, count, at); \
        wrote(fd, parts, count, at, written); \
        return written; \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

ssize_t write(int fd, const void *bytes, size_t size) {
    NEXT(write);
    ssize_t written = next(fd, bytes, size);
    struct iovec part = {(void *)bytes, size};
    if (written > 0) wrote(fd, &part, 1, lseek(fd, 0, SEEK_CUR) - written, written);
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    ssize_t written = next(fd, parts, count);
    if (written > 0) wrote(fd, parts, count, lseek(fd, 0, SEEK_CUR) - written, written);
    return written;
}

#define TRUNCATE(function) \
    int function(int fd, off_t size) { \
        NEXT(function); \
        int result = next(fd, size); \
        simple('t', fd, result, size); \
        return result; \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(function) \
    int function(int fd) { \
        NEXT(function); \
        int result = next(fd); \
        simple('s', fd, result, 0); \
        return result; \
    }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
    NEXT(rename);
    int result = next(from, to);
    if (!result) {
        named('n', to);
        named('u', from);
    }
    return result;
}

int link(const char *from, const char *to) {
    NEXT(link);
    int result = next(from, to);
    if (!result) named('n', to);
    return result;
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    NEXT(linkat);
    int result = next(from_fd, from, to_fd, to, flags);
    if (!result && (to_fd == AT_FDCWD || to[0] == '/')) named('n', to);
    return result;
}

int unlink(const char *path) {
    NEXT(unlink);
    int result = next(path);
    if (!result) named('u', path);
    return result;
}
