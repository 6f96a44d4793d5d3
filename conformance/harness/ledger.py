"""The legal contents of each sector of a part of a volume, given the answers to its only writer.

Every write has a number, and every sector contains the number of its write. Overlapping commands of one session
take effect in the order in which they are sent, so the numbers of a sector's writes only grow.
"""

import struct

from .case import Failed
from .iscsi import BLOCK, GOOD, LOST

MARK = 0x7765697263726173
# The sector number in a block of WRITE SAME, which is the same in all sectors.
ANYWHERE = (1 << 64) - 1
# The kind of a write is in the low bits of its number.
STAMPED, ZEROES, REPEATED, KINDS = 0, 1, 2, 4
EMPTY = bytes(BLOCK)


def stamp(sector, number):
    return struct.pack(">QQQQ", MARK, sector, number, ~number & ANYWHERE) * (BLOCK // 32)


def content(sector, number):
    """The contents of a sector after that write; empty without a write."""
    kind = number % KINDS
    if number == 0 or kind == ZEROES:
        return EMPTY
    return stamp(ANYWHERE if kind == REPEATED else sector, number)


class Ledger:
    """The sectors from `first` on, `count` of them.

    `last` is the last write that was sent, `acked` the last that was answered, `kept` the last that must
    survive the gateway: with `early`, every write that was answered, else those before a flush and those with FUA.
    """

    def __init__(self, first, count, early=True):
        self.first, self.count, self.early = first, count, early
        self.number = self.settled = 0
        self.last, self.acked, self.kept, self.zeroed = [0] * count, [0] * count, [0] * count, [0] * count
        # Writes with and without an answer, and sectors that were older or newer than their last answered write.
        self.answered = self.doubtful = self.lost = self.newer = 0

    def write(self, at, count, kind=STAMPED):
        """The number of the next write."""
        self.number += KINDS
        number = self.number + kind
        self.last[at:at + count] = [number] * count
        if kind == ZEROES:
            self.zeroed[at:at + count] = [number] * count
        return number

    def data(self, at, count, number):
        return b"".join(content(self.first + sector, number) for sector in range(at, at + count))

    def wrote(self, at, count, number, status, fua=False):
        """How a write ended."""
        if status in LOST:
            self.doubtful += 1
            return
        if status != GOOD:
            raise Failed(f"a write of {count} sectors at {self.first + at} ended with status {status:#x}")
        self.answered += 1
        for sector in range(at, at + count):
            # Of two writes that overlap, the second may be answered first.
            self.acked[sector] = max(self.acked[sector], number)
        if self.early or fua:
            for sector in range(at, at + count):
                self.kept[sector] = max(self.kept[sector], number)

    def flushing(self):
        """The writes that a flush sent now makes durable."""
        return None if self.early else list(self.acked)

    def flushed(self, before, status):
        if status in LOST:
            return
        if status != GOOD:
            raise Failed(f"a flush ended with status {status:#x}")
        if before is not None:
            self.kept = list(map(max, self.kept, before))

    def wanted(self, at, count):
        """The expected data of a read sent now."""
        return self.data_of(at, self.last[at:at + count])

    def data_of(self, at, numbers):
        return [content(self.first + at + index, number) for index, number in enumerate(numbers)]

    def compare(self, at, wanted, found):
        """Checks the data of a read, without a failure."""
        for index, expected in enumerate(wanted):
            piece = found[index * BLOCK:(index + 1) * BLOCK]
            if piece != expected:
                sector = self.first + at + index
                raise Failed(f"sector {sector} was read as {describe(sector, piece)}; the last write sent before "
                             f"is {describe(sector, expected)}")

    def settle(self, found):
        """Checks all sectors after the gateway was killed: each must hold the last durable write or a later one,
        which becomes its expected content. Returns the errors by sector."""
        wrong = []
        for index in range(self.count):
            sector, piece = self.first + index, found[index * BLOCK:(index + 1) * BLOCK]
            number = self.which(index, piece)
            # A write in doubt that an earlier kill lost must not reappear.
            legal = number is not None and (number == self.kept[index] or number > max(self.kept[index], self.settled))
            if legal and number < self.acked[index]:
                self.lost += 1
            elif legal and number > self.acked[index]:
                self.newer += 1
            if not legal:
                wrong.append(f"sector {sector} holds {describe(sector, piece)}; write {self.kept[index]} was promised, "
                             f"write {self.acked[index]} was answered last, write {self.last[index]} was sent last")
                number = self.acked[index] if number is None else number
            self.last[index] = self.acked[index] = self.kept[index] = number
            self.zeroed[index] = number if number % KINDS == ZEROES else 0
        self.settled = self.number + KINDS - 1
        return wrong

    def which(self, index, piece):
        """The write of a sector; None if it is of none."""
        if piece == EMPTY:
            return self.zeroed[index]
        mark, _, number, _ = struct.unpack(">QQQQ", piece[:32])
        if mark != MARK or number > self.last[index] or piece != content(self.first + index, number):
            return None
        return number


def describe(sector, piece):
    mark, where, number, _ = struct.unpack(">QQQQ", piece[:32])
    if piece == EMPTY:
        return "zeroes"
    if mark != MARK:
        return f"data that was never written ({piece[:16].hex()})"
    if piece != stamp(where, number):
        return f"parts of several writes, one of them {number}"
    if where not in (sector, ANYWHERE):
        return f"write {number} of sector {where}"
    return f"write {number}"
