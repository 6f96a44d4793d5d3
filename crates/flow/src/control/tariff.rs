//! Computes the cost of a request in tokens of its tenant's contract: the mix rule.
//!
//! A request of a row's size costs `1 / iops` seconds of the contract; a contract earns one second per
//! second. Between the sizes of two rows the cost is on the line through them, past the largest it goes
//! on at the slope of the last two, below the smallest it is flat. A contract of one row counts a request
//! as `max(1, bytes / size)`.
//!
//! Costs are in milli-tokens: a token is `1 / iops` seconds of the contract's first row.
//!
//! Source: `docs/reference/control.md` section 12, X1; the floor and the single row: section 2.2, A3.

use super::contract::{COST_MAX, Direction, Row, TOKEN};
use crate::request::Request;
use alloc::vec::Vec;

/// The costs of one contract.
#[derive(Clone, Debug)]
pub(super) struct Tariff {
    /// Milli-tokens per second.
    rate: u128,
    read: Vec<Point>,
    write: Vec<Point>,
}

/// What a size costs: `1 / iops` seconds.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: u128,
    iops: u128,
    /// The same in milli-tokens, rounded up.
    cost: u64,
}

impl Tariff {
    /// That of these rows, of which there is one at least.
    pub(super) fn new(rows: &[Row]) -> Self {
        let rate = u128::from(rows[0].iops) * u128::from(TOKEN);
        let points = |direction| {
            let point = |row: &Row| {
                let cost = bounded(rate.div_ceil(row.iops.into()));
                Point { size: row.size.into(), iops: row.iops.into(), cost }
            };
            let covered = rows.iter().filter(|row| row.ops.cover(direction)).map(point);
            let mut points: Vec<Point> = covered.collect();
            if points.is_empty() {
                // What is promised for no size counts like the other direction.
                points = rows.iter().map(point).collect();
            }
            // Rows of one size differ in the load up to which they hold, not in their rate.
            points.dedup_by_key(|point| point.size);
            points
        };
        Self { rate, read: points(Direction::Read), write: points(Direction::Write) }
    }

    /// Milli-tokens that a request costs, rounded up; at least one.
    pub(super) fn cost(&self, request: &Request) -> u64 {
        let points = match Direction::of(request.op) {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        let bytes = u128::from(request.payload());
        let first = points[0];
        if bytes <= first.size {
            return first.cost;
        }
        let (seconds, over) = if points.len() == 1 {
            (bytes, first.iops * first.size)
        } else {
            let above = points.iter().position(|point| bytes <= point.size);
            let above = above.unwrap_or(points.len() - 1);
            let (low, high) = (points[above - 1], points[above]);
            let span = high.size - low.size;
            let rise = (low.iops - high.iops) * (bytes - low.size);
            (high.iops * span + rise, low.iops * high.iops * span)
        };
        bounded((self.rate * seconds).div_ceil(over))
    }
}

fn bounded(cost: u128) -> u64 {
    u64::try_from(cost).unwrap_or(u64::MAX).clamp(1, COST_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::contract::{Contract, Ops, Target};
    use super::*;
    use crate::clock::Duration;
    use crate::request::Op;
    use crate::testing;
    use crate::units::Extent;
    use alloc::vec;

    fn costs<const N: usize>(rows: &[Row], op: Op, bytes: [u64; N]) -> [u64; N] {
        let tariff = Tariff::new(rows);
        bytes.map(|bytes| {
            let extent = Extent::new(0, bytes);
            tariff.cost(&Request { op, extent, ..testing::request(0) })
        })
    }

    fn row(ops: Ops, size: u32, iops: u32) -> Row {
        let targets = vec![Target { quantile_ppm: 990_000, response: Duration::from_millis(1) }];
        Row { ops, size, iops, load_permille: None, targets }
    }

    /// With one row a request costs its size in units of the row's, rounded up to a milli-token;
    /// nothing, not even a flush, costs less than a token.
    #[test]
    fn one_row_counts_size_with_a_floor() {
        let rows = Contract::new(7, 4_096, Duration::from_millis(1)).rows;
        let bytes = [0, 512, 4_096, 4_097, 6_144, 8_192];
        assert_eq!(costs(&rows, Op::Read, bytes), [1_000, 1_000, 1_000, 1_001, 1_500, 2_000]);
        assert_eq!(costs(&rows, Op::Flush, [1 << 40]), [1_000]);
        assert_eq!(costs(&rows, Op::Write, [u64::MAX]), [COST_MAX]);
    }

    /// Half of the rate of one row and half of that of another fill a contract; between and past the rows
    /// the cost is linear.
    #[test]
    fn rows_mix() {
        let rows = [row(Ops::Any, 4_096, 4_000), row(Ops::Any, 32_768, 1_000)];
        let bytes = [512, 4_096, 18_432, 32_768, 61_440];
        assert_eq!(costs(&rows, Op::Read, bytes), [1_000, 1_000, 2_500, 4_000, 7_000]);
        let [small, large] = costs(&rows, Op::Write, [4_096, 32_768]);
        assert_eq!(small * 2_000 + large * 500, 4_000 * TOKEN);
    }

    /// Reads and writes have rows of their own; an operation without any counts by those of the other.
    #[test]
    fn directions_have_rows() {
        let rows = [row(Ops::Read, 4_096, 3_000), row(Ops::Write, 4_096, 1_000)];
        assert_eq!(costs(&rows, Op::Read, [4_096]), [1_000]);
        assert_eq!(costs(&rows, Op::Write, [4_096, 8_192]), [3_000, 6_000]);
        assert_eq!(costs(&rows[..1], Op::Write, [8_192]), [2_000]);
    }
}
