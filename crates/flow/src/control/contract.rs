//! Contracts: the objectives, rate, credit, tier and group of each tenant.
//!
//! Source: the tuple `W = {iops, size, rt}` of the token-bucket paper, section 2.1, and its extension to
//! several tuples, percentiles, credits and groups (`docs/reference/control.md` section 12, X1 to X4).

use crate::clock::Duration;
use crate::request::{Op, Request};
use alloc::vec;
use alloc::vec::Vec;

/// What everybody is promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// By [`TenantId`](crate::request::TenantId), at most [`CONTRACTS_MAX`]. `None`, or past the end:
    /// nothing is promised, the tenant shares what is left (best effort).
    pub contracts: Vec<Option<Contract>>,
    /// What contracts name as their group; a group's parent comes before it. At most [`GROUPS_MAX`].
    pub groups: Vec<Group>,
}

/// A tenant's contract: while it asks for no more than its rows allow, requests end within their targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Rates and response times by operation and size, 1 to [`ROWS_MAX`]. The first is the tuple of
    /// policies that know only one, and its rate the unit of tokens. A mix is within the contract while
    /// the sum over the rows of rate / `iops` is at most one.
    pub rows: Vec<Row>,
    /// How much may come at once and still be guaranteed, as time at the contract's rate. 1 ms to
    /// [`CREDIT_MAX`].
    pub burst: Duration,
    /// How much of what was not used may be saved for later, as time at the contract's rate; zero saves
    /// nothing. At most [`CREDIT_MAX`].
    pub credit: Duration,
    /// How fast burst credit may be spent, in thousandths of the contract's rate: 1000 to 100000.
    pub peak_permille: u32,
    /// Tokens per second that are not exceeded even if no other tenant wants anything.
    pub limit: Option<u32>,
    /// Its part of what is left over, against its siblings; 1 to [`IOPS_MAX`].
    pub weight: u32,
    /// Who gives way first when not all contracts can be kept.
    pub tier: Tier,
    /// Index in [`Promises::groups`].
    pub group: Option<u32>,
}

/// One row of a contract: `iops` such requests a second end within these times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which operations it is about.
    pub ops: Ops,
    /// Bytes of a request, 1 to [`SIZE_MAX`].
    pub size: u32,
    /// Requests per second, 1 to [`IOPS_MAX`].
    pub iops: u32,
    /// What the tenant asks for at most while the row holds, in thousandths of its contract: 1 to
    /// [`LOAD_MAX`]. `None`: whatever it asks for. Rows for one operation and size, which differ in
    /// nothing else but their targets, are listed by ascending load; past the last nothing is promised.
    pub load_permille: Option<u32>,
    /// Response times, by ascending quantile; 1 to [`TARGETS_MAX`].
    pub targets: Vec<Target>,
}

/// Operations that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ops {
    /// All.
    Any,
    /// What returns or checks data.
    Read,
    /// What changes data or makes it durable.
    Write,
}

/// What a request is, to a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Returns or checks data.
    Read,
    /// Changes data or makes it durable.
    Write,
}

/// A share of the requests, and the time from arrival to end that it is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The share in millionths: [`QUANTILE_MIN`] to [`QUANTILE_MAX`].
    pub quantile_ppm: u32,
    /// The time: [`RESPONSE_MIN`] to [`RESPONSE_MAX`].
    pub response: Duration,
}

impl Target {
    /// The share of requests that may miss it, in millionths.
    pub const fn allowed_ppm(&self) -> u32 {
        1_000_000 - self.quantile_ppm
    }
}

/// Who gives way first when capacity is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// First.
    Bronze,
    /// After all bronze.
    Silver,
    /// Last.
    #[default]
    Gold,
}

/// Tenants, or groups of them, that are promised something together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group that it belongs to: an earlier index.
    pub parent: Option<u32>,
    /// Requests per second of `size` that its members may have guaranteed together; what one does not
    /// use another may borrow. At least what its members are promised in sum.
    pub iops: u32,
    /// Bytes of such a request.
    pub size: u32,
    /// Requests per second of `size` that are not exceeded even if no other tenant wants anything.
    pub limit: Option<u32>,
    /// Its part of what is left over, against its siblings.
    pub weight: u32,
}

/// The most tenants that contracts can be listed for.
pub const CONTRACTS_MAX: usize = 1 << 17;

/// The most groups.
pub const GROUPS_MAX: usize = 1 << 12;

/// The most groups above a tenant.
pub const GROUP_DEPTH_MAX: usize = 8;

/// The largest load that a row can hold up to: ten times the contract, in thousandths.
pub const LOAD_MAX: u32 = 10_000;

/// The most rows of a contract.
pub const ROWS_MAX: usize = 16;

/// The most targets of a row.
pub const TARGETS_MAX: usize = 8;

/// The highest rate that can be promised, and the largest weight.
pub const IOPS_MAX: u32 = 10_000_000;

/// The largest size that can be promised: 1 GiB.
pub const SIZE_MAX: u32 = 1 << 30;

/// The shortest response time that can be promised.
pub const RESPONSE_MIN: Duration = Duration::from_micros(1);

/// The longest response time that can be promised.
pub const RESPONSE_MAX: Duration = Duration::from_secs(3_600);

/// The smallest quantile that can be promised: every second request.
pub const QUANTILE_MIN: u32 = 500_000;

/// The largest quantile that can be promised.
pub const QUANTILE_MAX: u32 = 999_999;

/// The quantile of a response time that is promised without one.
pub const QUANTILE: u32 = 990_000;

/// The shortest burst that can be guaranteed.
pub const BURST_MIN: Duration = Duration::from_millis(1);

/// The burst of a contract that says nothing of it.
pub const BURST: Duration = Duration::from_millis(100);

/// The longest burst that can be guaranteed, and the most that can be saved.
pub const CREDIT_MAX: Duration = Duration::from_secs(3_600);

/// The rate at which burst credit is spent, of a contract without one.
pub const PEAK_PERMILLE: u32 = 2_000;

/// Milli-tokens in a token, the right to one request of the size of a contract's first row.
pub(super) const TOKEN: u64 = 1_000;

impl Direction {
    /// That of a request.
    pub const fn of(op: Op) -> Self {
        match op {
            Op::Read | Op::Verify => Self::Read,
            Op::Write | Op::Flush | Op::Discard | Op::WriteZeroes | Op::Update => Self::Write,
        }
    }
}

impl Ops {
    /// Whether it is one of these.
    pub const fn cover(self, direction: Direction) -> bool {
        matches!(
            (self, direction),
            (Self::Any, _) | (Self::Read, Direction::Read) | (Self::Write, Direction::Write)
        )
    }
}

impl Contract {
    /// The contract of the paper: one row for all operations, with [`QUANTILE`] as its share.
    pub fn new(iops: u32, size: u32, response: Duration) -> Self {
        let targets = vec![Target { quantile_ppm: QUANTILE, response }];
        let rows = vec![Row { ops: Ops::Any, size, iops, load_permille: None, targets }];
        Self {
            rows,
            burst: BURST,
            credit: Duration::ZERO,
            peak_permille: PEAK_PERMILLE,
            limit: None,
            weight: iops,
            tier: Tier::Gold,
            group: None,
        }
    }

    /// The row that a request falls under while the tenant's load is in the band that ends at `band`
    /// thousandths: of those for its operation the first that is large enough, or the largest, and that
    /// holds up to there. `None` if there is none: then nothing is promised.
    pub fn row(&self, request: &Request, band: u32) -> Option<usize> {
        let direction = Direction::of(request.op);
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.ops.cover(direction));
        let fits = |row: &Row| request.payload() <= u64::from(row.size);
        let sized = rows.clone().find(|(_, row)| fits(row)).or_else(|| rows.clone().next_back())?.1;
        let mut bands = rows.filter(|(_, row)| row.size == sized.size);
        bands.find(|(_, row)| row.load_permille.is_none_or(|load| band <= load)).map(|(i, _)| i)
    }

    /// What is out of range here, in words for its author.
    pub fn validate(&self) -> Result<(), &'static str> {
        if self.rows.is_empty() || self.rows.len() > ROWS_MAX {
            return Err("a contract has no row, or more than 16");
        }
        self.rows.iter().try_for_each(Row::validate)?;
        for direction in [Direction::Read, Direction::Write] {
            let rows = self.rows.iter().filter(|row| row.ops.cover(direction));
            for (small, large) in rows.clone().zip(rows.skip(1)) {
                if small.size == large.size && small.iops == large.iops {
                    let load = |row: &Row| row.load_permille.unwrap_or(u32::MAX);
                    if load(small) >= load(large) {
                        return Err("rows for one operation and size are not in order of load");
                    }
                } else if small.size >= large.size {
                    return Err("a contract's rows for one operation are not in order of size");
                }
                if small.iops < large.iops {
                    return Err("a contract promises larger requests at a higher rate");
                }
            }
        }
        if self.burst < BURST_MIN || self.burst > CREDIT_MAX || self.credit > CREDIT_MAX {
            return Err("a contract's burst is not from 1 ms to an hour, or its credit above one");
        }
        if !(1_000..=100_000).contains(&self.peak_permille) {
            return Err("a contract's peak is not from 1 to 100 times its rate");
        }
        if self.limit.is_some_and(|limit| limit < self.rows[0].iops || limit > IOPS_MAX) {
            return Err("a contract's limit is below its rate, or above 10000000 per second");
        }
        if self.weight == 0 || self.weight > IOPS_MAX {
            return Err("a contract's weight is not from 1 to 10000000");
        }
        Ok(())
    }
}

impl Row {
    /// What is out of range here, in words for its author.
    fn validate(&self) -> Result<(), &'static str> {
        if self.iops == 0 || self.iops > IOPS_MAX {
            return Err("a contract's rate is not from 1 to 10000000 requests per second");
        }
        if self.size == 0 || self.size > SIZE_MAX {
            return Err("a contract's size is not from 1 byte to 1 GiB");
        }
        if self.load_permille.is_some_and(|load| load == 0 || load > LOAD_MAX) {
            return Err("a row's load is not from a thousandth of the contract to ten times it");
        }
        if self.targets.is_empty() || self.targets.len() > TARGETS_MAX {
            return Err("a row of a contract has no response time, or more than 8");
        }
        for target in &self.targets {
            if target.response < RESPONSE_MIN || target.response > RESPONSE_MAX {
                return Err("a contract's response time is not from 1 us to an hour");
            }
            if !(QUANTILE_MIN..=QUANTILE_MAX).contains(&target.quantile_ppm) {
                return Err("a contract's quantile is not from 0.5 to 0.999999");
            }
        }
        for (low, high) in self.targets.iter().zip(&self.targets[1..]) {
            if low.quantile_ppm >= high.quantile_ppm || low.response > high.response {
                return Err("a larger share of a row is promised a shorter time");
            }
        }
        Ok(())
    }

    /// The response time of the largest share.
    pub fn response(&self) -> Duration {
        self.targets.last().expect("a row has a target").response
    }
}

impl Promises {
    /// What contradicts itself here, in words for its author.
    pub fn validate(&self) -> Result<(), &'static str> {
        if self.contracts.len() > CONTRACTS_MAX || self.groups.len() > GROUPS_MAX {
            return Err("more than 131072 contracts or 4096 groups");
        }
        self.contracts.iter().flatten().try_for_each(Contract::validate)?;
        let mut depths: Vec<usize> = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            group.validate()?;
            let above = match group.parent {
                None => 0,
                Some(parent) if (parent as usize) < index => depths[parent as usize],
                Some(_) => return Err("a group's parent does not come before it"),
            };
            if above == GROUP_DEPTH_MAX {
                return Err("groups are nested more than 8 deep");
            }
            depths.push(above + 1);
        }
        let groups = self.contracts.iter().flatten().filter_map(|contract| contract.group);
        if groups.map(|group| group as usize).any(|group| group >= self.groups.len()) {
            return Err("a contract names a group that is not there");
        }
        self.oversold().map_or(Ok(()), |_| Err("a group promises its members more than it has"))
    }

    /// The first group whose members are promised more than it has itself.
    pub fn oversold(&self) -> Option<usize> {
        let has = |group: &Group| u64::from(group.iops) * TOKEN;
        self.groups.iter().zip(self.sold()).position(|(group, sold)| sold > has(group))
    }

    /// What the members of each group are promised in sum: thousandths of requests of the group's size
    /// per second. Groups that are named must be there.
    pub fn sold(&self) -> Vec<u64> {
        let mut sold = vec![0_u64; self.groups.len()];
        let mut promise = |group: Option<u32>, iops: u32, size: u32| {
            let Some(group) = group.map(|group| group as usize) else { return };
            let cost = by_size(size.into(), self.groups[group].size);
            sold[group] = sold[group].saturating_add(cost.saturating_mul(u64::from(iops)));
        };
        for contract in self.contracts.iter().flatten() {
            promise(contract.group, contract.rows[0].iops, contract.rows[0].size);
        }
        for group in &self.groups {
            promise(group.parent, group.iops, group.size);
        }
        sold
    }
}

impl Group {
    fn validate(&self) -> Result<(), &'static str> {
        if self.iops == 0 || self.iops > IOPS_MAX {
            return Err("a group's rate is not from 1 to 10000000 requests per second");
        }
        if self.size == 0 || self.size > SIZE_MAX {
            return Err("a group's size is not from 1 byte to 1 GiB");
        }
        if self.limit.is_some_and(|limit| limit < self.iops || limit > IOPS_MAX) {
            return Err("a group's limit is below its rate, or above 10000000 per second");
        }
        if self.weight == 0 || self.weight > IOPS_MAX {
            return Err("a group's weight is not from 1 to 10000000");
        }
        Ok(())
    }
}

/// The weight of tenants without a contract when they share what is left, and the rate at which they go
/// on while the switched policies hold them, in requests of [`BEST_EFFORT_SIZE`] a second.
pub(super) const BEST_EFFORT_IOPS: u32 = 100;

/// Bytes of such a request.
const BEST_EFFORT_SIZE: u32 = 4_096;

/// What a tenant without a contract is taken to have, where something must be: nothing keeps it.
pub(super) fn best_effort() -> Contract {
    Contract::new(BEST_EFFORT_IOPS, BEST_EFFORT_SIZE, RESPONSE_MAX)
}

/// The index of a request's tenant among `lines`; the last is for all tenants past the list.
pub(super) fn line(request: &Request, lines: usize) -> usize {
    request.tenant.index().min(lines - 1)
}

/// The most that a request costs: as much as 4 billion requests. Keeps sums in range.
pub(super) const COST_MAX: u64 = 1 << 42;

/// Milli-tokens that `bytes` cost where a token is a request of `size`: at least one token.
pub(super) fn by_size(bytes: u64, size: u32) -> u64 {
    let cost = (u128::from(bytes) * u128::from(TOKEN)).div_ceil(u128::from(size));
    u64::try_from(cost).unwrap_or(u64::MAX).clamp(TOKEN, COST_MAX)
}

#[cfg(test)]
mod tests;
