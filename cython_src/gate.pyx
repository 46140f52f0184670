# cython: language_level=3
"""Locks that an exception cannot leave behind, wherever it strikes.

Python raises KeyboardInterrupt, and whatever ``PyThreadState_SetAsyncExc`` sends, between two bytecodes. Code written in
Python can therefore be stopped between taking a lock and noting that it has it, in a ``finally`` block, and a second
time while it handles the first exception. Nothing here can, for two reasons:

1. Taking a lock and recording who holds it is one call of C code, and so is letting go. No bytecode runs in between, so
   no exception can strike in between.
2. A lock is held by an object. A ``with`` block calls the object's ``__exit__``, which is C code, before the exception
   reaches the handler of the caller. If an exception strikes before the ``with`` block is set up, only the
   interpreter's stack refers to the object: unwinding the stack frees it, and freeing it lets go.

So the rule for the rest of the package: hold a lock, a transaction or a descriptor in a :class:`Block` or in a ``with``
block of its own, and never in a generator (``contextlib.contextmanager`` is Python code).

The interpreter lock protects the fields below. (This module does not declare itself compatible with free threading, so
a free-threaded interpreter takes that lock when it imports the module.) No statement that tests or changes a field
allocates an object that the garbage collector tracks: a collection could run finalizers, and these other threads.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF

import errno
import os
import threading
import time
import weakref
from _thread import allocate_lock

import lmdb

from lsqindex._compiled.records import overflow_sound
from lsqindex._storage.format.keys import META, STATE
from lsqindex.errors import REMEDY, BusyError, ClosedError, DamagedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

cdef object _open = os.open, _close = os.close, _stat = os.stat, _getpid = os.getpid, _monotonic = time.monotonic


# -- the gate -------------------------------------------------------------------------------------


cdef class Gate:
    """Many threads may be inside at once, or one alone; a thread that is inside may enter again.

    Who wants to be alone stands in line: otherwise a thread that leaves and comes again, over and over, would always be
    faster than one that has to wake up first.
    """

    cdef dict _inside  # how many passes each thread has inside
    cdef object _alone  # the thread that is alone, or waits until the others are out; None
    cdef long _times  # how often that thread is alone: it may be so again
    cdef readonly long inside  # how many passes are inside
    cdef list _line  # passes that want to be alone, in the order in which they came
    cdef list _waiting  # locks that waiting threads sleep on

    def __cinit__(self):
        self._inside = {}
        self._line = []
        self._waiting = []

    @property
    def mine(self):
        """Whether this thread is alone inside, or waits to be."""
        return self._alone is not None and self._alone == PyThread_get_thread_ident()

    @property
    def closed(self):
        """Whether newcomers wait: a thread is alone, or waits to be."""
        return self._alone is not None

    def enter(self):
        """Wait until nobody is alone, and pass: a :class:`Pass` for a ``with`` block."""
        cdef Pass made = Pass(self)
        made.enter()
        return made

    def alone(self):
        """Wait until everybody is out, and let nobody in: a :class:`Pass` for a ``with`` block."""
        cdef Pass made = Pass(self)
        made.alone()
        return made

    cdef int _wake(self) except -1:
        """Let all that wait look again."""
        while self._waiting:
            self._waiting.pop().release()
        return 0

    cdef object _bed(self):
        """A lock to sleep on until something changes. Look at the gate again between this and sleeping."""
        lock = allocate_lock()
        lock.acquire()
        self._waiting.append(lock)
        return lock


#: Seconds after which a sleeping thread looks for signals: one may have come just before it fell asleep.
cdef double _NAP = 0.5


cdef bint _sleep(bed, double seconds) except -1:
    """Sleep until woken, and no longer than ``seconds``: True if woken. Signal handlers run here, and may raise."""
    PyErr_CheckSignals()
    return bed.acquire(True, min(seconds, _NAP))


@cython.no_gc_clear
cdef class Pass:
    """A place at a gate, inside or out, and the LMDB transaction for which it is inside.

    ``leave`` may be called at any time, by any thread, any number of times. Freeing a pass leaves.
    """

    cdef Gate _gate
    cdef object _thread  # who is inside; None: nobody
    cdef object _pid
    cdef bint _is_alone, _writes
    cdef long _shares  # how many still need it: who entered, and threads that help (share)
    cdef bint _wanted  # who entered has not left
    cdef readonly object txn

    def __init__(self, Gate gate not None):
        self.leave()
        self._gate = gate

    def enter(self):
        """Wait until nobody is alone, and pass."""
        cdef Gate gate = self._gate
        self._go_out()
        me, bed = PyThread_get_thread_ident(), None
        while gate._alone is not None and gate._alone != me and me not in gate._inside:
            if bed is None:
                bed = gate._bed()
            elif _sleep(bed, _NAP):
                bed = None
        gate._inside[me] = gate._inside.get(me, 0) + 1
        gate.inside += 1
        self._thread, self._is_alone, self._shares, self._wanted = me, False, 1, True

    def alone(self, seconds=None, Change change=None):
        """Wait until everybody is out, and let nobody in; False if that takes longer than ``seconds``.

        False, too, as soon as another thread has committed ``change``: there is nothing left to be alone for. What
        another thread is writing at this moment is waited for, however long that takes.
        """
        cdef Gate gate = self._gate
        self._go_out()
        me, bed, left = PyThread_get_thread_ident(), None, 0
        end = None if seconds is None else _monotonic() + seconds
        if me in gate._inside:
            raise BusyError("this thread is still reading the index; finish that first")
        claimed = gate._alone is not None and gate._alone == me
        try:
            gate._line.append(self)
            while not claimed or gate._inside:
                if change is not None and change.done:
                    break
                elif not claimed and gate._alone is None and gate._line[0] is self:
                    gate._alone = me
                    claimed = True
                elif bed is None:
                    bed = gate._bed()
                elif end is not None and (left := end - _monotonic()) <= 0 and (change is None or not change._taken):
                    break
                elif _sleep(bed, _NAP if end is None or left <= 0 else left):
                    bed = None
            else:
                gate._times += 1
                self._thread, self._is_alone, self._shares, self._wanted = me, True, 1, True
                claimed = False  # it is the pass's now
                return True
        finally:
            first = gate._line[0] is self
            gate._line.remove(self)
            if claimed and not gate._times:
                gate._alone = None
            # Who is not the first waits for the first, and not for this one.
            if gate._alone is None and (first or claimed):
                gate._wake()
        return False

    def begin(self, env, bint write=False):
        """Begin a transaction of LMDB, which ends when the pass leaves."""
        self._pid, self._writes = _getpid(), write
        if write:
            _know_thread()
        self.txn = env.begin(None, None, write, True)
        return self.txn

    def leave(self):
        """Undo the transaction, unless it was committed, and go out."""
        cdef dict inside
        if self._wanted:
            self._wanted = False
            if self._shares > 1:
                # Helping threads keep it inside, on nobody's behalf: this thread may wait for them.
                inside, me, self._thread = self._gate._inside, self._thread, 0
                inside[0] = inside.get(0, 0) + 1
                if inside[me] > 1:
                    inside[me] -= 1
                else:
                    del inside[me]
            self._part()

    def share(self):
        """For a thread that helps: a ``with`` block during which the pass stays inside."""
        return Share(self)

    cdef int _go_out(self) except -1:
        self.leave()
        if self._shares:
            raise BusyError("other threads still read what was read last; wait for them, or begin anew")
        return 0

    cdef int _part(self) except -1:
        """One needs it less; the last one goes out."""
        cdef Gate gate = self._gate
        self._shares -= 1
        if self._shares:
            return 0
        txn, self.txn = self.txn, None
        try:
            if txn is not None:
                if self._pid == _getpid():
                    txn.abort()
                else:
                    Py_INCREF(txn)  # the parent's, with which a fork shares it: never touch it, never free it
        finally:
            me, self._thread = self._thread, None
            if self._is_alone:
                gate._times -= 1
                if not gate._times:
                    gate._alone = None
                    gate._wake()
                return 0
            gate.inside -= 1
            if gate._inside[me] > 1:
                gate._inside[me] -= 1
            else:
                del gate._inside[me]
                gate._wake()
        return 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.leave()

    def __dealloc__(self):
        self.leave()


@cython.final
@cython.no_gc_clear
cdef class Share:
    """Keeps a pass inside while a helping thread works, even if the thread that entered is interrupted and leaves."""

    cdef Pass _of
    cdef bint _taken

    def __cinit__(self, Pass of not None):
        self._of = of

    def __enter__(self):
        if not self._of._wanted:
            raise ClosedError("the snapshot has ended: whoever began it was interrupted")
        self._of._shares += 1
        self._taken = True

    def __exit__(self, kind, error, trace):
        if self._taken:
            self._taken = False
            self._of._part()

    def __dealloc__(self):
        if self._taken:
            self._of._part()


# -- changes that are committed together ----------------------------------------------------------


cdef class Changes:
    """Changes whose threads wait for their turn to write, in the order in which they came."""

    cdef list _waiting

    def __cinit__(self):
        self._waiting = []

    def __len__(self):
        return len(self._waiting)


cdef class Change:
    """What a thread wants to have written: when its turn comes, or earlier, by a thread whose turn it is.

    Whoever writes it sets ``result`` or ``error``. They count when the change is ``done``: the transaction is
    committed. A thread that is interrupted while it waits leaves, and its change is written by nobody, unless another
    thread is doing so at that moment.
    """

    cdef Changes _line
    cdef bint _taken, _left
    cdef readonly bint done
    #: Not to be written by another thread.
    cdef public bint apart
    cdef public object result, error

    def wait_in(self, Changes line not None):
        """Wait with the others; the thread that has the turn may take it from now on."""
        self._line, self._left = line, False
        line._waiting.append(self)

    def leave(self):
        """Wait no longer."""
        self._left = True
        if self._line is not None and self in self._line._waiting:
            self._line._waiting.remove(self)

    def outcome(self):
        """The result; or raises the error."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self.result


@cython.no_gc_clear
cdef class Group:
    """Changes that one thread writes in one transaction. When it leaves, those that are not done wait again."""

    cdef Changes _line
    cdef Gate _turn
    cdef list _taken

    def __init__(self, Changes line not None, Gate turn not None):
        self._line, self._turn, self._taken = line, turn, []

    def take(self, Change own not None):
        """All that wait and may be written by another thread; ``own``, this thread's, among them."""
        cdef list waiting = self._line._waiting, taken = self._taken
        cdef Py_ssize_t i = 0
        while i < len(waiting):
            change = waiting[i]
            if change is own or not ((<Change>change).apart or own.apart):
                (<Change>change)._taken = True
                taken.append(waiting.pop(i))
            else:
                i += 1
        return taken.copy()

    def give_back(self, Change change not None):
        """Let a change wait again."""
        self._taken.remove(change)
        change._taken = False
        if not change._left:
            self._line._waiting.insert(0, change)

    def commit(self, txn):
        """Commit the transaction, if there is one: then all changes are done, and their threads are woken."""
        if txn is not None:
            txn.commit()
        if self._taken:
            while self._taken:
                change = self._taken.pop()
                (<Change>change)._taken = False
                (<Change>change).done = True
            self._turn._wake()

    def leave(self):
        """Give all back."""
        while self._taken:
            self.give_back(self._taken[len(self._taken) - 1])

    def __dealloc__(self):
        if self._taken is not None:
            Group.leave(self)


# -- files ----------------------------------------------------------------------------------------

#: Descriptors that hold a lock. A child of a fork closes its copies, which would keep the locks alive.
locks = set()


@cython.no_gc_clear
cdef class File:
    """An open file. Leaving, or freeing the object, closes it."""

    cdef readonly int fd
    cdef object _pid

    def __cinit__(self, path, int flags, int mode=0o644):
        self.fd = -1
        self._pid = _getpid()
        self.fd = _open(path, flags, mode)

    def leave(self):
        """Close the file."""
        fd, self.fd = self.fd, -1
        if fd >= 0 and self._pid == _getpid():
            _close(fd)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.leave()

    def __dealloc__(self):
        if self.fd >= 0 and self._pid == _getpid():
            _close(self.fd)


@cython.no_gc_clear
cdef class LockFile(File):
    """An open file whose lock may be held. Leaving, or freeing the object, unlocks and closes it."""

    def __cinit__(self, path, int flags, int mode=0o644):
        locks.add(self.fd)

    def lock(self, end=None):
        """Wait for the lock; False if others still hold it at ``end``, a time of the monotonic clock.

        True, too, where the file system or the operating system has no such locks: LMDB's own lock must do.
        """
        cdef double pause = 0.0005
        if fcntl is None:  # Windows
            return True
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | (0 if end is None else fcntl.LOCK_NB))
                return True
            except BlockingIOError:
                if end is not None and _monotonic() >= end:
                    return False
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                    raise
                return True

    def leave(self):
        """Give the lock back and close the file."""
        if self.fd >= 0 and self._pid == _getpid():
            locks.discard(self.fd)
            # For all copies of the descriptor: a child may have been forked that does not know of it.
            try:
                if fcntl is not None:
                    fcntl.flock(self.fd, fcntl.LOCK_UN)
            except OSError:
                pass
        File.leave(self)

    def __dealloc__(self):
        LockFile.leave(self)


# -- blocks ---------------------------------------------------------------------------------------


@cython.no_gc_clear
cdef class Block:
    """A ``with`` block that is set up by Python code and left by C code.

    ``begin(block)``, or ``_begin()`` of a subclass, takes what the block needs, a thing at a time, as
    ``block.hold(Pass(gate))``, and returns what ``as`` gives. ``_end(error)`` of a subclass runs when the block is left, before everything held is let go of, the
    last thing first. The same happens if ``begin`` fails, and when the block is freed.

    LMDB ties a write transaction to the thread that began it. When another thread leaves such a block, its own thread
    lets go: the next time it enters a block, or when it ends.
    """

    cdef object _by
    cdef list _held
    cdef readonly bint entered
    cdef bint _known  # to the thread that writes
    cdef object __weakref__

    def __init__(self, begin=None):
        self._by = begin

    @classmethod
    def __class_getitem__(cls, given):
        """For annotations: what ``as`` gives."""
        return cls

    def hold(self, thing):
        """Let go of ``thing`` when the block is left."""
        if self._held is None:
            self._held = []
        self._held.append(thing)
        return thing

    def __enter__(self):
        if self.entered:
            raise BusyError("this with block is in use already; make another one")
        if _left:
            _finish_left()
        self.entered = True
        try:
            given = self._begin() if self._by is None else self._by(self)
            if self._held is not None and _writes(self._held):
                (<_ThreadEnd>_local.end).blocks[id(self)] = weakref.ref(self)
                self._known = True
            return given
        except:
            self.release()
            raise

    def __exit__(self, kind, error, trace):
        try:
            self._end(error)
        finally:
            self.release()

    def _end(self, error):
        pass

    def release(self):
        """Let go of everything."""
        held, self._held = self._held, None
        self.entered = False
        if self._known:
            self._known = False
            end = getattr(_local, "end", None)
            if end is not None:
                (<_ThreadEnd>end).blocks.pop(id(self), None)
        if held:
            owner = _tied(held)
            if owner is None:
                _let_go(held)
            else:
                _left.append((owner, held))

    def __dealloc__(self):
        self.release()


# -- errors ---------------------------------------------------------------------------------------


cdef class Translating:
    """A ``with`` block that errors leave as others: ``_ours(error)`` of a subclass gives the other, or None."""

    cdef readonly object path

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            ours = self._ours(error)
            if ours is not None:
                raise ours from error

    def _ours(self, error):
        return None


# -- transactions ---------------------------------------------------------------------------------


cdef class Transaction:
    """A transaction of an environment's file, to read from."""

    cdef public object env, file, txn, state
    #: Inside the gate, and it is this that holds the transaction.
    cdef public Pass place
    #: The databases of the transaction: a snapshot from before an upgrade has fewer.
    cdef public dict dbs
    #: Addresses found in this transaction stay valid in later ones (see columns.py): nothing was written in it.
    cdef public bint clean

    def get(self, bytes db not None, bytes key not None):
        """The value, a view that lives until the transaction ends or writes; None if there is none."""
        return self.txn.get(key, None, self.dbs[db])

    def cursor(self, bytes db not None):
        """A cursor of a database."""
        return self.txn.cursor(self.dbs[db])


cdef class Reader(Transaction):
    """A snapshot: one committed state, and the transaction that holds it.

    ``place.share()`` is for a thread that helps to read it.
    """

    def __init__(self, env, file, Pass place not None, state, dict dbs not None):
        self.env, self.file, self.place, self.txn, self.state, self.dbs = env, file, place, place.txn, state, dbs
        self.clean = True


cdef class WriteTransaction(Transaction):
    """A transaction to read from and to write to."""

    def put(self, bytes db not None, bytes key not None, bytes value not None):
        """Store a value."""
        handle = self.dbs[db]
        old = self.txn.get(key, None, handle)
        self.clean = False
        if old is not None:
            self.guard(key, old)
            # LMDB overwrites a large value of this transaction in place and never shrinks its pages.
            if len(old) != len(value):
                self.txn.delete(key, b"", handle)
        self.txn.put(key, value, True, True, False, handle)

    def delete(self, bytes db not None, bytes key not None):
        """Remove a value."""
        handle = self.dbs[db]
        old = self.txn.get(key, None, handle)
        self.clean = False
        if old is not None:
            self.guard(key, old)
            self.txn.delete(key, b"", handle)

    def guard(self, key, value):
        """DamagedError where LMDB would free other pages than those of ``value``, which is to go."""
        if not overflow_sound(value, len(key), self.file.page_size):
            raise DamagedError(f"{self.env.path}: an overflow page is damaged; {REMEDY}")


def in_place(file):
    """Whether the path leads to the file that is open, and this is its only name. If not, ``file.replaced()`` tells more."""
    if file.unnamed:
        return True
    try:
        there = _stat(file.path)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == file.identity and there.st_nlink == 1 and not file.linked


def last_state(file, txn, bint writing=False):
    """(state, databases) if the transaction finds the state that the last one found or wrote; None if it must be read."""
    if file.last_state is None:
        return None
    record, state, dbs = file.last_state
    value = txn.get(STATE, None, dbs[META])
    if value is None or bytes(value) != record or state.txn != txn.id() - writing:
        return None
    return state, dbs


@cython.no_gc_clear
cdef class WriteBlock(Block):
    """A ``with`` block that writes to the file ``path``: ``_translated`` of a subclass knows LMDB's errors."""

    cdef readonly object path

    def __init__(self, path, begin):
        self.path, self._by = path, begin

    def _end(self, error):
        if isinstance(error, lmdb.Error):
            raise self._translated(error) from error


@cython.no_gc_clear
cdef class ReadBlock(Block):
    """A ``with`` block that reads a snapshot. Every search passes here.

    Most find the file where it was, and the state that the last one found. A subclass does the rest: ``_anew`` opens,
    follows, decodes and checks whatever has changed, and ``_translated`` knows the errors of LMDB.
    """

    cdef readonly object env
    cdef object _check, _file
    cdef readonly Pass place

    def __init__(self, env, check=None):
        self.env, self._check = env, check

    def _begin(self):
        env = self.env
        self.place = Pass(env.gate)
        self.hold(self.place)
        cdef Reader reader = None
        if env.pid == _getpid():  # (A gate that was forked may never open.)
            try:
                reader = self._as_before()
                if reader is not None and self._check is not None:
                    self._check(reader)
            except (lmdb.Error, OSError):
                reader = None
        if reader is None:
            self.place.leave()
            reader = self._anew(self._check)
        self._file = reader.file
        return reader

    cdef Reader _as_before(self):
        """The snapshot, if nothing but its number is new; None if something may be."""
        env, place = self.env, self.place
        place.enter()
        file = env.file
        if file is None or file.last_state is None:
            return None
        txn = place.begin(file.lmdb)
        # (Who writes reads the file it writes to; the commit will notice if it was replaced.)
        if not ((<Gate>env.turn).mine or in_place(file)):
            return None
        found = last_state(file, txn)
        return None if found is None else Reader(env, file, place, found[0], found[1])

    def _end(self, error):
        if error is None:
            if self._file.linked or not self._file.protected:
                self._file.check_unchanged(self.place.txn)
        elif isinstance(error, lmdb.Error):
            raise self._translated(error) from error


# -- what other threads have left behind ----------------------------------------------------------


cdef bint _writes(list held):
    for thing in held:
        if isinstance(thing, Pass) and (<Pass>thing)._writes and (<Pass>thing).txn is not None:
            return True
    return False


cdef object _tied(list held):
    """The thread that must let go of these things; None: any."""
    me = PyThread_get_thread_ident()
    for thing in held:
        if isinstance(thing, Pass) and (<Pass>thing)._writes and (<Pass>thing).txn is not None:
            owner = (<Pass>thing)._thread
            if owner != me and owner in _threads:
                return owner
    return None


cdef int _let_go(list held) except -1:
    while held:
        thing = held.pop()
        try:
            thing.leave()
        except Exception:  # the lock itself was let go of: see Pass._part
            pass
    return 0


#: What other threads have left behind: (thread, things that it holds).
cdef list _left = []
#: Threads that have begun a write transaction, and have not ended.
cdef set _threads = set()
cdef object _local = threading.local()


cdef int _finish_left() except -1:
    """Let go of what this thread must let go of."""
    cdef Py_ssize_t i = 0
    me = PyThread_get_thread_ident()
    while i < len(_left):
        if _left[i][0] == me:
            _let_go(_left.pop(i)[1])
            i = 0
        else:
            i += 1
    return 0


cdef int _know_thread() except -1:
    if getattr(_local, "end", None) is None:
        _local.end = _ThreadEnd()
    return 0


@cython.no_gc_clear
cdef class _ThreadEnd:
    """Freed by a thread when it ends: the thread then lets go of what it still holds."""

    cdef object _thread
    cdef dict blocks  # weak references to blocks that the thread is in

    def __cinit__(self):
        self.blocks = {}
        self._thread = PyThread_get_thread_ident()
        _threads.add(self._thread)

    def __dealloc__(self):
        if self._thread == PyThread_get_thread_ident():  # and not after a fork
            _finish_left()
            while self.blocks:
                block = self.blocks.popitem()[1]()
                if block is not None:
                    (<Block>block)._known = False
                    block.release()
        _threads.discard(self._thread)
