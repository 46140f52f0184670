/* Is the skeleton of an LMDB file sound? A walk over its B-tree pages, before LMDB itself trusts them.
 *
 * LMDB (data format 1, of 0.9) believes its pages: a flipped bit in one can make it crash, lose a
 * subtree in silence, or hand out a page that is in use. Values are guarded by checksums of their own
 * (records.py); here everything else is:
 *
 *   - the meta page of the snapshot; both roots (free list, main) and every named tree;
 *   - each branch and leaf page: its own number, bounds of its nodes, keys rising and within the
 *     limits its parents promise, the tree's counters of pages and entries;
 *   - each page is used once: by a tree, a value or the free list.
 *
 * Values on overflow pages are counted, not read (`deep` reads the header of each), so the walk costs
 * a few dozen pages for a million vectors. The caller holds a read transaction, so the pages of its snapshot, of the
 * one before it and of all later ones are not reused during the walk.
 */
#ifndef LSQ_PAGES_H
#define LSQ_PAGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { LSQ_BRANCH = 1, LSQ_LEAF = 2, LSQ_OVERFLOW = 4, LSQ_META = 8 };
enum { LSQ_BIGDATA = 1, LSQ_SUBDATA = 2 };
enum { LSQ_PAGE_HEADER = 16, LSQ_NODE_HEADER = 8, LSQ_DB_SIZE = 48, LSQ_META_SIZE = 136, LSQ_DEPTH = 32 };
enum { LSQ_FREE_TREE, LSQ_MAIN_TREE, LSQ_NAMED_TREE };

typedef struct {
    const uint8_t *map;
    uint64_t last;  /* the last page of the snapshot */
    uint64_t there; /* pages of the file; free ones at its end may never have been written */
    uint32_t page_size;
    int deep;
    uint8_t *used; /* a bit per page */
    const char *why;
    uint64_t where;
    uint64_t newest; /* the largest key of the free list: a transaction that freed pages */
} lsq_walk;

typedef struct {
    int kind;
    uint64_t branches, leaves, overflows, entries;
} lsq_tree;

typedef struct { const uint8_t *key; uint32_t size; } lsq_key;

static int lsq_bad(lsq_walk *walk, uint64_t page, const char *why) {
    walk->why = why;
    walk->where = page;
    return 0;
}

static int lsq_use(lsq_walk *walk, uint64_t page, uint64_t count, uint64_t end) {
    if (page < 2 || page >= end || count > end - page) return lsq_bad(walk, page, "a page beyond the file");
    for (uint64_t i = page; i < page + count; i++) {
        if (walk->used[i >> 3] & 1u << (i & 7)) return lsq_bad(walk, i, "a page in two places");
        walk->used[i >> 3] |= (uint8_t)(1u << (i & 7));
    }
    return 1;
}

static int lsq_compare(const lsq_tree *tree, lsq_key a, lsq_key b) {
    if (tree->kind == LSQ_FREE_TREE) { /* keys are transaction ids */
        uint64_t x = lsq_load64(a.key), y = lsq_load64(b.key);
        return x < y ? -1 : x > y;
    }
    int order = memcmp(a.key, b.key, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int lsq_walk_tree(lsq_walk *walk, const uint8_t *db, int kind);

/* The value of a leaf's node, of `size` bytes; `data` is where it, or its page number, is. */
static int lsq_walk_value(lsq_walk *walk, lsq_tree *tree, uint64_t page, const uint8_t *data, uint64_t size, int flags) {
    if (flags & LSQ_BIGDATA) {
        uint64_t first = lsq_load64(data), count = (size + LSQ_PAGE_HEADER - 1) / walk->page_size + 1;
        if (!lsq_use(walk, first, count, walk->there)) return 0;
        tree->overflows += count;
        data = walk->map + first * walk->page_size;
        if (walk->deep || tree->kind == LSQ_FREE_TREE) {
            if (lsq_load64(data) != first || lsq_load16(data + 10) != LSQ_OVERFLOW || lsq_load32(data + 12) != count)
                return lsq_bad(walk, first, "a damaged overflow page");
        }
        data += LSQ_PAGE_HEADER;
    }
    if (flags & LSQ_SUBDATA) {
        if (tree->kind != LSQ_MAIN_TREE || flags != LSQ_SUBDATA || size != LSQ_DB_SIZE)
            return lsq_bad(walk, page, "a tree where none belongs");
        return lsq_walk_tree(walk, data, LSQ_NAMED_TREE);
    }
    if (tree->kind == LSQ_FREE_TREE) {
        if (size < 8 || size % 8 || lsq_load64(data) != size / 8 - 1) return lsq_bad(walk, page, "a damaged free list");
        for (uint64_t i = 1; i < size / 8; i++)
            if (!lsq_use(walk, lsq_load64(data + 8 * i), 1, walk->last + 1)) return 0;
    }
    return 1;
}

static int lsq_walk_page(lsq_walk *walk, lsq_tree *tree, uint64_t page, int levels, lsq_key low, lsq_key high) {
    if (!lsq_use(walk, page, 1, walk->there)) return 0;
    const uint8_t *p = walk->map + page * walk->page_size;
    uint32_t flags = lsq_load16(p + 10), lower = lsq_load16(p + 12), upper = lsq_load16(p + 14), taken = 0;
    if (lsq_load64(p) != page) return lsq_bad(walk, page, "a page that is another");
    if (flags != (levels == 1 ? LSQ_LEAF : LSQ_BRANCH)) return lsq_bad(walk, page, "a page of a wrong kind");
    if (lower < LSQ_PAGE_HEADER || lower % 2 || lower > upper || upper > walk->page_size)
        return lsq_bad(walk, page, "a page with impossible bounds");
    uint32_t count = (lower - LSQ_PAGE_HEADER) / 2;
    if (count < (levels == 1 ? 1u : 2u)) return lsq_bad(walk, page, "a page without nodes");
    if (levels == 1) { tree->leaves++; tree->entries += count; } else tree->branches++;
    lsq_key before = low;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = lsq_load16(p + LSQ_PAGE_HEADER + 2 * i);
        if (at < upper || at % 2 || at + LSQ_NODE_HEADER > walk->page_size) return lsq_bad(walk, page, "a node outside its page");
        const uint8_t *node = p + at;
        uint64_t size = lsq_load16(node) | (uint64_t)lsq_load16(node + 2) << 16;
        uint32_t kind = lsq_load16(node + 4), length = lsq_load16(node + 6);
        lsq_key key = {node + LSQ_NODE_HEADER, length};
        uint64_t whole = LSQ_NODE_HEADER + (uint64_t)length + (levels > 1 ? 0 : kind & LSQ_BIGDATA ? 8 : size);
        if (whole > walk->page_size - at) return lsq_bad(walk, page, "a node outside its page");
        taken += (uint32_t)(whole + (whole & 1));
        /* The first key of a branch is not looked at by LMDB: it stands for the parent's. */
        int open = levels > 1 && i == 0;
        if (!open) {
            if (tree->kind == LSQ_FREE_TREE ? length != 8 : length == 0) return lsq_bad(walk, page, "a key of impossible size");
            if (before.key && lsq_compare(tree, before, key) >= (before.key == low.key)) return lsq_bad(walk, page, "keys out of order");
            if (high.key && lsq_compare(tree, key, high) >= 0) return lsq_bad(walk, page, "a key beyond its parent's limit");
            before = key;
        }
        if (levels == 1) {
            if (tree->kind == LSQ_FREE_TREE) walk->newest = lsq_load64(key.key); /* they rise */
            if (kind & ~(uint32_t)(LSQ_BIGDATA | LSQ_SUBDATA)) return lsq_bad(walk, page, "a node of unknown kind");
            if (!lsq_walk_value(walk, tree, page, key.key + length, size, (int)kind)) return 0;
        } else {
            lsq_key next = high;
            if (i + 1 < count) {
                uint32_t to = lsq_load16(p + LSQ_PAGE_HEADER + 2 * (i + 1));
                if (to < upper || to % 2 || to + LSQ_NODE_HEADER > walk->page_size) return lsq_bad(walk, page, "a node outside its page");
                next.key = p + to + LSQ_NODE_HEADER;
                next.size = lsq_load16(p + to + 6);
                if (to + LSQ_NODE_HEADER + next.size > walk->page_size || (tree->kind == LSQ_FREE_TREE && next.size != 8))
                    return lsq_bad(walk, page, "a node outside its page");
            }
            if (!lsq_walk_page(walk, tree, size | (uint64_t)kind << 32, levels - 1, open ? low : key, next)) return 0;
        }
    }
    return taken == walk->page_size - upper ? 1 : lsq_bad(walk, page, "nodes that overlap");
}

/* A tree from its 48-byte description: pad, flags, depth, branch, leaf, overflow pages, entries, root. */
static int lsq_walk_tree(lsq_walk *walk, const uint8_t *db, int kind) {
    lsq_tree tree = {kind, 0, 0, 0, 0};
    uint32_t flags = lsq_load16(db + 4), depth = lsq_load16(db + 6);
    uint64_t root = lsq_load64(db + 40);
    lsq_key none = {NULL, 0};
    if (flags != (kind == LSQ_FREE_TREE ? 8u : 0u)) return lsq_bad(walk, root, "a tree of an unknown kind");
    if (depth > LSQ_DEPTH || (depth == 0) != (root == UINT64_MAX)) return lsq_bad(walk, root, "a tree of impossible depth");
    if (depth && !lsq_walk_page(walk, &tree, root, (int)depth, none, none)) return 0;
    if (lsq_load64(db + 8) != tree.branches || lsq_load64(db + 16) != tree.leaves ||
        lsq_load64(db + 24) != tree.overflows || lsq_load64(db + 32) != tree.entries)
        return lsq_bad(walk, root, "a tree with wrong counts");
    return 1;
}

/* Whether LMDB, asked to free this value, would free its pages: it believes the count in their header. */
static int lsq_overflow_sound(const uint8_t *value, uint64_t size, uint64_t key_size, uint32_t page_size) {
    uint64_t node_max = ((page_size - LSQ_PAGE_HEADER) / 2 & ~1ULL) - 2;
    if (LSQ_NODE_HEADER + key_size + size <= node_max) return 1; /* inside a leaf */
    const uint8_t *header = value - LSQ_PAGE_HEADER;
    const uint32_t dirty = 16; /* not written out yet */
    return (lsq_load16(header + 10) & ~dirty) == LSQ_OVERFLOW &&
           lsq_load32(header + 12) == (size + LSQ_PAGE_HEADER - 1) / page_size + 1;
}

/* Walk the free list of a snapshot and, unless `only_free`, its trees. Returns why they are unsound, or NULL.
 *
 * `meta` is a copy of the snapshot's meta page, behind the page header. It must be a copy: after two more commits the
 * page itself describes another snapshot, and a walk that reads it twice would mix the two.
 * `newest` is the last transaction that freed pages, which is the snapshot's own. */
static const char *lsq_check_pages(const uint8_t *map, uint64_t size, uint32_t page_size, const uint8_t *meta, int deep,
                                   int only_free, uint64_t *where, uint64_t *newest) {
    lsq_walk walk = {map, lsq_load64(meta + 120), size / page_size, page_size, deep, NULL, NULL, 0, 0};
    *where = *newest = 0;
    if (walk.last < 1 || walk.last >= UINT64_MAX / page_size) return "an impossible last page";
    if (walk.there > walk.last + 1) walk.there = walk.last + 1;
    /* Pages that were taken at the end and freed in one transaction are not written: a free list, 8 bytes a page,
     * must name all of them. */
    if (walk.last + 1 - walk.there > size / 8) return "the file is truncated";
    walk.used = (uint8_t *)calloc(walk.last / 8 + 1, 1);
    if (!walk.used) return "an impossible last page, or no memory";
    /* The free tree's flags carry the environment's own; only the key kind matters. */
    uint8_t free_tree[LSQ_DB_SIZE];
    memcpy(free_tree, meta + 24, LSQ_DB_SIZE);
    free_tree[4] &= 8;
    free_tree[5] = 0;
    if (lsq_walk_tree(&walk, free_tree, LSQ_FREE_TREE) && !only_free && lsq_walk_tree(&walk, meta + 72, LSQ_MAIN_TREE))
        for (uint64_t i = walk.there; i <= walk.last; i++)
            if (!(walk.used[i >> 3] & 1u << (i & 7)) && !lsq_bad(&walk, i, "the file is truncated")) break;
    free(walk.used);
    *where = walk.where;
    *newest = walk.newest;
    return walk.why;
}

#endif
