# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""What reads an index file below Python: checksums, LMDB's pages, rows of a column.

Addresses point into LMDB's map, were checked when their record was first touched, and are used only
while a transaction holds their snapshot (_storage/format/columns.py).
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy

from column cimport column_of, lsq_column
from header cimport LSQ_HEADER, lsq_checksum, lsq_header


cdef extern from "pages.h" nogil:
    enum: LSQ_META_SIZE
    const char *lsq_check_pages(const uint8_t *map, uint64_t size, uint32_t page_size, const uint8_t *meta, int deep,
                                int only_free, uint64_t *where, uint64_t *newest)
    int lsq_overflow_sound(const uint8_t *value, uint64_t size, uint64_t key_size, uint32_t page_size)

cdef extern from "verify.h" nogil:
    int lsq_record_sound(const uint8_t *payload, uint64_t first, uint32_t count, uint8_t kind, uint32_t width,
                         uint32_t generation, uint32_t head)

cdef extern from "gather.h" nogil:
    int64_t lsq_gather(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t width, int64_t head,
                       uint8_t *out)
    int64_t lsq_gather_ints(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t *out)
    int lsq_string(const lsq_column *column, uint32_t row, const uint8_t **bytes, uint32_t *size)

cdef extern from "find.h" nogil:
    int64_t lsq_find_ints(const lsq_column *column, const uint32_t *rows, int64_t count, const int64_t *ids,
                          int64_t n, int64_t *places, uint8_t *found)
    int64_t lsq_find_strings(const lsq_column *column, const uint32_t *rows, int64_t count, const uint8_t *text,
                             const uint32_t *ends, int64_t n, int64_t *places, uint8_t *found)

cdef extern from "glue.h":
    pass


def checksum(const uint8_t[::1] data not None, uint64_t seed=0):
    """XXH64 of ``data``; see checksum.h."""
    cdef uint64_t hash, size = data.shape[0]
    cdef const uint8_t *p = &data[0] if size else NULL
    with nogil:
        hash = lsq_checksum(p, size, seed)
    return hash


def encode(bytes kind not None, uint32_t count, uint64_t first, uint32_t width, uint32_t generation, uint32_t head,
           const uint8_t[::1] payload not None):
    """The record of a payload, header first; see _storage/format/records.py."""
    cdef uint64_t size = payload.shape[0]
    cdef const uint8_t *body = &payload[0] if size else NULL
    cdef bytes record = PyBytes_FromStringAndSize(NULL, LSQ_HEADER + size)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(record)
    cdef lsq_header *header = <lsq_header *>to
    if len(kind) != 1:
        raise ValueError("encode: a kind is one letter")
    memcpy(to, b"LSQ", 3)
    to[3] = kind[0]
    header.count, header.first, header.width, header.generation = count, first, width, generation
    header.size, header.head, header.zero = size, head, 0
    with nogil:
        header.checksum = lsq_checksum(body, size, lsq_checksum(to, LSQ_HEADER - 8, 0))
        if size:
            memcpy(to + LSQ_HEADER, body, size)
    return record


def decode(const uint8_t[::1] value not None):
    """(kind, count, first, width, generation, head) of a record; None where it is none, False where its checksum differs."""
    cdef uint64_t size = value.shape[0], found
    cdef const lsq_header *header
    if size < LSQ_HEADER:
        return None
    header = <const lsq_header *>&value[0]
    if memcmp(&value[0], b"LSQ", 3) or header.zero or header.size != size - LSQ_HEADER:
        return None
    with nogil:
        found = lsq_checksum(&value[0] + LSQ_HEADER, header.size, lsq_checksum(&value[0], LSQ_HEADER - 8, 0))
    if found != header.checksum:
        return False
    return (<const char *>&value[3])[:1], header.count, header.first, header.width, header.generation, header.head


def peek(list values not None):
    """(counts, checksums) of records as their headers tell them, not verified; the first that is too short for one."""
    cdef int64_t i, n = len(values)
    cdef const uint8_t[::1] value
    counts, checksums = np.zeros(n, np.int64), np.zeros(n, np.uint64)
    cdef int64_t[::1] to = counts
    cdef uint64_t[::1] sums = checksums
    for i in range(n):
        value = values[i]
        if value.shape[0] < LSQ_HEADER:
            return counts, checksums, i
        to[i] = (<const lsq_header *>&value[0]).count
        sums[i] = (<const lsq_header *>&value[0]).checksum
    return counts, checksums, n


def address(const uint8_t[::1] data not None):
    """Where ``data`` lies in memory."""
    return <uintptr_t>&data[0] if data.shape[0] else 0


def places(list values not None):
    """(addresses, sizes) of values, buffers of LMDB's."""
    cdef int64_t i, n = len(values)
    cdef const uint8_t[::1] value
    addresses, sizes = np.zeros(n, np.uint64), np.zeros(n, np.int64)
    cdef uint64_t[::1] to = addresses
    cdef int64_t[::1] lengths = sizes
    for i in range(n):
        value = values[i]
        lengths[i] = value.shape[0]
        if value.shape[0]:
            to[i] = <uintptr_t>&value[0]
    return addresses, sizes


def verify(const uint64_t[::1] addresses not None, const uint32_t[::1] firsts not None,
           const uint32_t[::1] counts not None, uint8_t kind, uint32_t width, uint32_t generation, uint32_t head):
    """How many of these records of codes, each of full blocks, are sound one after another; see _storage/format/records.py."""
    cdef int64_t i, n = addresses.shape[0]
    if firsts.shape[0] != n or counts.shape[0] != n:
        raise ValueError("verify: the arrays differ in length")
    with nogil:
        for i in range(n):
            if not lsq_record_sound(<const uint8_t *><uintptr_t>addresses[i], firsts[i], counts[i], kind, width, generation,
                                    head):
                break
        else:
            i = n
    return i


def check_pages(const uint8_t[::1] file not None, uint32_t page_size, const uint8_t[::1] meta not None, bint deep):
    """Why the B-tree pages of the snapshot that ``meta`` describes are unsound, and the page, or None; see pages.h."""
    cdef uint64_t where = 0, newest = 0, size = file.shape[0]
    cdef const char *why
    _check_sizes(size, page_size, meta.shape[0])
    with nogil:
        why = lsq_check_pages(&file[0], size, page_size, &meta[0], deep, False, &where, &newest)
    return None if why is NULL else (why.decode(), where)


def last_freed(const uint8_t[::1] file not None, uint32_t page_size, const uint8_t[::1] meta not None):
    """The last transaction that freed pages, by the free list of a meta page; 0 where it cannot be told."""
    cdef uint64_t where = 0, newest = 0, size = file.shape[0]
    cdef const char *why
    _check_sizes(size, page_size, meta.shape[0])
    with nogil:
        why = lsq_check_pages(&file[0], size, page_size, &meta[0], False, True, &where, &newest)
    return newest if why is NULL else 0


cdef _check_sizes(uint64_t size, uint32_t page_size, uint64_t meta):
    if page_size < 512 or page_size > 65536 or page_size & (page_size - 1) or meta != LSQ_META_SIZE \
            or size < 2 * page_size:
        raise ValueError("an impossible page size, or a file without meta pages")


def overflow_sound(const uint8_t[::1] value not None, uint64_t key_size, uint32_t page_size):
    """Whether LMDB would free the pages of ``value``, a view of its own, and no others; see pages.h."""
    return value.shape[0] == 0 or lsq_overflow_sound(&value[0], value.shape[0], key_size, page_size) != 0


def gather(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
           const uint64_t[::1] addresses not None, const uint32_t[::1] rows not None, int64_t width, int64_t head):
    """``rows`` of a column as uint8 (n, width); LookupError for a row that no record holds."""
    if not 0 <= head <= width:
        raise ValueError("gather: the head is larger than the row")
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef int64_t missing = -1, n = rows.shape[0]
    out = np.empty((n, width), np.uint8)
    cdef uint8_t[:, ::1] view = out
    if n and width:
        with nogil:
            missing = lsq_gather(&column, &rows[0], n, width, head, &view[0, 0])
    if missing >= 0:
        raise LookupError(f"row {rows[missing]} is in no record")
    return out


def touched(const uint32_t[::1] starts not None, const uint8_t[::1] verified not None, const uint32_t[::1] rows not None):
    """Whether the records that would hold ``rows``, by where they start, have all been verified."""
    cdef int64_t n = rows.shape[0], records = starts.shape[0], i, at, left, half
    cdef bint fine = records > 0 or n == 0
    if verified.shape[0] != records:
        raise ValueError("touched: shapes do not fit")
    with nogil:
        for i in range(n if fine else 0):
            # Halved without a branch, as in column.h.
            at, left = 0, records
            while left > 1:
                half = left // 2
                at += half if starts[at + half] <= rows[i] else 0
                left -= half
            if starts[at] > rows[i] or not verified[at]:
                fine = False
    return bool(fine)


def gather_ints(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                const uint64_t[::1] addresses not None, const uint32_t[::1] rows not None):
    """The int ids of ``rows``; LookupError for a row that no record holds."""
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef int64_t missing = -1, n = rows.shape[0]
    out = np.empty(n, np.int64)
    cdef int64_t[::1] view = out
    if n:
        with nogil:
            missing = lsq_gather_ints(&column, &rows[0], n, &view[0])
    if missing >= 0:
        raise LookupError(f"row {rows[missing]} is in no record")
    return out


def gather_strings(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                   const uint64_t[::1] addresses not None, const uint32_t[::1] rows not None, bint raw=False):
    """The strings of ``rows``, a list (``raw``: their bytes); LookupError for a row that no record holds."""
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef const uint8_t *text
    cdef uint32_t size
    cdef int64_t i
    out = []
    for i in range(rows.shape[0]):
        if not lsq_string(&column, rows[i], &text, &size):
            raise LookupError(f"row {rows[i]} is in no record")
        if raw:
            out.append(PyBytes_FromStringAndSize(<const char *>text, size))
        else:
            out.append(PyUnicode_DecodeUTF8(<const char *>text, size, NULL))
    return out


def find_ints(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
              const uint64_t[::1] addresses not None, const uint32_t[::1] rows not None,
              const int64_t[::1] ids not None):
    """(places, found): where ``ids`` belong among ``rows``, which are sorted by their ids; see find.h."""
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef int64_t failed = -1, n = ids.shape[0], count = rows.shape[0]
    places, found = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    cdef int64_t[::1] to = places
    cdef uint8_t[::1] was = found.view(np.uint8)
    if n and count:
        with nogil:
            failed = lsq_find_ints(&column, &rows[0], count, &ids[0], n, &to[0], &was[0])
    if failed >= 0:
        raise LookupError("a row of a sorted block is in no record")
    return places, found


def find_strings(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                 const uint64_t[::1] addresses not None, const uint32_t[::1] rows not None,
                 const uint8_t[::1] text not None, const uint32_t[::1] ends not None):
    """As :func:`find_ints`, for strings: their bytes one after another in ``text``, and where each ends."""
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef int64_t failed = -1, n = ends.shape[0], count = rows.shape[0]
    cdef uint8_t nothing = 0
    cdef const uint8_t *p = &text[0] if text.shape[0] else &nothing
    if n and ends[n - 1] != text.shape[0]:
        raise ValueError("find_strings: the ends do not fit the text")
    places, found = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    cdef int64_t[::1] to = places
    cdef uint8_t[::1] was = found.view(np.uint8)
    if n and count:
        with nogil:
            failed = lsq_find_strings(&column, &rows[0], count, p, &ends[0], n, &to[0], &was[0])
    if failed >= 0:
        raise LookupError("a row of a sorted block is in no record")
    return places, found
