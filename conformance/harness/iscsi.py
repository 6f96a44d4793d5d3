"""libiscsi by ctypes: sessions with many commands outstanding, all served by one loop."""

import ctypes
import functools
import select
import time

from .case import Failed

BLOCK = 512
GOOD, CHECK_CONDITION, BUSY, TASK_SET_FULL = 0, 2, 8, 0x28
# The status that libiscsi gives to commands without an answer on a lost session: cancelled, error, timeout.
LOST = (0x0F000000, 0x0F000001, 0x0F000002)
NORMAL_SESSION = 2
# More reads than necessary to get the data that a connection received before its end.
READS_MAX = 10_000
# A session with commands outstanding may have no answer for this long, in seconds.
SILENCE_MAX = 120

DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Unmap(ctypes.Structure):
    _fields_ = [("lba", ctypes.c_uint64), ("blocks", ctypes.c_uint32)]


@functools.cache
def library():
    try:
        lib = ctypes.CDLL("libiscsi.so.7")
    except OSError as error:
        raise Failed(f"libiscsi.so.7 is missing: on Debian, apt-get install libiscsi7 ({error})") from error
    pointer, number, u64, u32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32
    signatures = {
        "iscsi_create_context": (pointer, [ctypes.c_char_p]),
        "iscsi_destroy_context": (number, [pointer]),
        "iscsi_set_targetname": (number, [pointer, ctypes.c_char_p]),
        "iscsi_set_session_type": (number, [pointer, number]),
        "iscsi_set_noautoreconnect": (None, [pointer, number]),
        "iscsi_set_timeout": (number, [pointer, number]),
        "iscsi_full_connect_sync": (number, [pointer, ctypes.c_char_p, number]),
        "iscsi_get_error": (ctypes.c_char_p, [pointer]),
        "iscsi_get_fd": (number, [pointer]),
        "iscsi_which_events": (number, [pointer]),
        "iscsi_service": (number, [pointer, number]),
        "iscsi_logout_sync": (number, [pointer]),
        "scsi_free_scsi_task": (None, [pointer]),
        "iscsi_read16_iov_task": (pointer, [pointer, number, u64, u32] + [number] * 6 + [DONE, pointer, pointer, number]),
        "iscsi_write16_task": (pointer, [pointer, number, u64, ctypes.c_char_p, u32] + [number] * 6 + [DONE, pointer]),
        "iscsi_writesame16_task": (pointer, [pointer, number, u64, ctypes.c_char_p, u32, u32] + [number] * 4 + [DONE, pointer]),
        "iscsi_unmap_task": (pointer, [pointer, number, number, number, pointer, number, DONE, pointer]),
        "iscsi_synchronizecache16_task": (pointer, [pointer, number, u64, u32, number, number, DONE, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Session:
    """One session with one unit, which ends when its connection does.

    Every command takes `done(status, data)`, called from `serve`: `data` is the data of a read; the
    status LOST means that it is unknown whether the command was executed.
    """

    def __init__(self, url, initiator):
        portal, target, lun = url.removeprefix("iscsi://").split("/")
        self.lun, self.waiting, self.number, self.raised = int(lun), {}, 0, None
        # `lost` is set first: libiscsi would also cancel commands that are started while it cancels, and never end.
        self.open, self.lost = True, False
        self.context = library().iscsi_create_context(initiator.encode())
        library().iscsi_set_targetname(self.context, target.encode())
        library().iscsi_set_session_type(self.context, NORMAL_SESSION)
        library().iscsi_set_noautoreconnect(self.context, 1)
        library().iscsi_set_timeout(self.context, 60)
        self.done = DONE(self.ended)
        if library().iscsi_full_connect_sync(self.context, portal.encode(), self.lun):
            why = self.why()
            library().iscsi_destroy_context(self.context)
            raise Failed(f"{url}: {why}")
        library().iscsi_set_timeout(self.context, 0)

    def why(self):
        return (library().iscsi_get_error(self.context) or b"").decode(errors="replace").strip()

    def ended(self, _, status, task, number):
        done, _, buffer = self.waiting.pop(number)
        self.lost |= status in LOST
        if task:
            library().scsi_free_scsi_task(task)
        try:
            done(status, buffer)
        except BaseException as error:  # An exception cannot pass through libiscsi.
            self.raised = self.raised or error

    def begin(self, done, keep, buffer=None):
        self.number += 1
        self.waiting[self.number] = (done, keep, buffer)
        return self.done, self.number

    def sent(self, task):
        if not task:
            raise Failed(f"libiscsi takes no command: {self.why()}")

    def read(self, lba, blocks, done, fua=False):
        buffer = ctypes.create_string_buffer(blocks * BLOCK)
        vector = Vector(ctypes.addressof(buffer), blocks * BLOCK)
        about = self.begin(done, vector, buffer)
        self.sent(library().iscsi_read16_iov_task(
            self.context, self.lun, lba, blocks * BLOCK, BLOCK, 0, 0, int(fua), 0, 0, *about, ctypes.addressof(vector), 1))

    def write(self, lba, data, done, fua=False):
        about = self.begin(done, data)
        self.sent(library().iscsi_write16_task(
            self.context, self.lun, lba, data, len(data), BLOCK, 0, 0, int(fua), 0, 0, *about))

    def write_same(self, lba, blocks, data, done):
        about = self.begin(done, data)
        self.sent(library().iscsi_writesame16_task(self.context, self.lun, lba, data, len(data), blocks, 0, 0, 0, 0, *about))

    def unmap(self, lba, blocks, done):
        one = Unmap(lba, blocks)
        about = self.begin(done, one)
        self.sent(library().iscsi_unmap_task(self.context, self.lun, 0, 0, ctypes.addressof(one), 1, *about))

    def flush(self, done):
        self.sent(library().iscsi_synchronizecache16_task(self.context, self.lun, 0, 0, 0, 0, *self.begin(done, None)))

    def fd(self):
        return library().iscsi_get_fd(self.context)

    def service(self, events):
        """Handles events of the socket; afterwards the session may be lost."""
        lost = False
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            # Answers before the end of the connection are valid, but libiscsi would not read them.
            for _ in range(READS_MAX):
                if lost or self.fd() < 0 or not self.waiting:
                    break
                lost = library().iscsi_service(self.context, select.POLLIN) != 0
            lost = True
        else:
            lost = library().iscsi_service(self.context, events) != 0 or self.fd() < 0
        if self.raised:
            raise self.raised
        if lost or self.lost:
            self.close()

    def close(self):
        """Commands without an answer end as lost."""
        if self.open:
            self.open, self.lost = False, True
            library().iscsi_destroy_context(self.context)
            for number in list(self.waiting):
                done, _, buffer = self.waiting.pop(number)
                done(LOST[0], buffer)

    def leave(self):
        if self.open:
            library().iscsi_logout_sync(self.context)
            self.close()


def serve(sessions, until, seconds=None, tick=None):
    """Serves sessions until `until()` holds, all are lost, or the time is over; whether `until` holds.

    `tick()` is called at intervals, and returns the maximum time to its next call, in seconds.
    """
    end = None if seconds is None else time.monotonic() + seconds
    heard = time.monotonic()
    while not until():
        now = time.monotonic()
        left = 1.0 if end is None else end - now
        living = [one for one in sessions if one.open]
        if left <= 0 or not living:
            return False
        wait = min(left, 1.0, tick() if tick else 1.0)
        poll, by_fd = select.poll(), {}
        for one in living:
            by_fd[one.fd()] = one
            poll.register(one.fd(), library().iscsi_which_events(one.context))
        ready = poll.poll(max(0.0, wait) * 1000)
        for fd, events in ready:
            by_fd[fd].service(events)
        if ready or not any(one.waiting for one in living):
            heard = time.monotonic()
        elif now - heard > SILENCE_MAX:
            waiting = sum(len(one.waiting) for one in living)
            raise Failed(f"{waiting} commands have had no answer for {SILENCE_MAX} s")
    return True
