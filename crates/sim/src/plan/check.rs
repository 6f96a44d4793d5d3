//! Checks the values of a plan beyond their types.

use super::{
    Access, Arrivals, End, MAX_DEPTH, MAX_FACTOR, MAX_PARTS, MAX_TENANTS, PathChange, Plan, Trace,
    Volume, Workload,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use weir_flow::clock::Duration;
use weir_flow::control::Contract;
use weir_flow::request::{LinkId, TenantId, VolumeId};
use weir_flow::settings::{Invalid, Settings};
use weir_flow::units::ByteCount;

/// The first thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The field, such as `workloads[2].region`.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for PlanError {}

/// The longest time in a plan: a century. Sums of a few of them fit the clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The most pieces that one request may be cut into.
const MAX_PIECES: u64 = 65_536;

impl Plan {
    /// Checks everything that the types leave open. What passes cannot make a run panic. Trace
    /// files are not opened.
    pub fn check(&self) -> Result<(), PlanError> {
        count("tenants", self.tenants.len(), MAX_TENANTS)?;
        most("contracts", self.promises.contracts.len(), self.tenants.len())?;
        most("shares", self.shares.tenants.len(), self.tenants.len())?;
        for (i, contract) in self.promises.contracts.iter().enumerate() {
            let valid = contract.as_ref().map_or(Ok(()), Contract::validate);
            valid.map_err(|message| error(format!("contracts[{i}]"), message))?;
        }
        self.promises.validate().map_err(|message| error("promises", message))?;
        count("volumes", self.volumes.len(), MAX_PARTS)?;
        count("backends", self.backends.len(), MAX_PARTS)?;
        count("links", self.links.len(), MAX_PARTS)?;
        if self.workloads.is_empty() && self.traces.is_empty() {
            return Err(error("workloads", "there must be a workload or a trace"));
        }
        most("workloads", self.workloads.len(), MAX_PARTS)?;
        most("traces", self.traces.len(), MAX_PARTS)?;
        self.check_end()?;
        valid("limits", &self.limits)?;
        valid("paths", &self.paths)?;
        self.check_parts()?;
        let mut names = BTreeSet::new();
        for (i, workload) in self.workloads.iter().enumerate() {
            let at = |field: &str| format!("workloads[{i}].{field}");
            require(names.insert(&workload.name), at("name"), "another workload has this name")?;
            self.check_ids(&at, (workload.tenant, workload.volume), workload.link)?;
            self.check_workload(&at, workload)?;
        }
        for (i, trace) in self.traces.iter().enumerate() {
            self.check_trace(&|field| format!("traces[{i}].{field}"), trace)?;
        }
        self.check_faults()
    }

    fn check_end(&self) -> Result<(), PlanError> {
        let End { duration, requests, warm_up, .. } = self.end;
        time("end.warm_up", warm_up)?;
        if let Some(duration) = duration {
            time("end.duration", duration)?;
            let some = duration > Duration::ZERO;
            require(some, "end.duration", "must be longer than nothing")?;
            require(warm_up < duration, "end.warm_up", "must end before the run does")?;
        }
        require(requests != Some(0), "end.requests", "must be at least 1")?;
        let endless = self.workloads.iter().position(|workload| workload.stop.is_none());
        match endless.filter(|_| duration.is_none() && requests.is_none()) {
            Some(i) => {
                let message = "the workload never stops; give the run a duration or a number of \
                               requests, or the workload a stop";
                Err(error(format!("workloads[{i}].stop"), message))
            }
            None => Ok(()),
        }
    }

    fn check_parts(&self) -> Result<(), PlanError> {
        for (i, volume) in self.volumes.iter().enumerate() {
            let at = |field: &str| format!("volumes[{i}].{field}");
            require(volume.size > 0, at("size"), "must be at least 1 byte")?;
            let known = volume.backend.index() < self.backends.len();
            require(known, at("backend"), "there is no such backend")?;
            volume.cap.validate().map_err(|message| error(at("cap"), message))?;
            require(volume.max_transfer > 0, at("max_transfer"), "must be at least 1 byte")?;
            let pieces = volume.size.min(self.limits.max_bytes).div_ceil(volume.max_transfer);
            let message = format!("would cut a request into more than {MAX_PIECES} pieces");
            require(pieces <= MAX_PIECES, at("max_transfer"), message)?;
        }
        valid("cache", &self.cache)?;
        let (mut names, mut paths) = (BTreeSet::new(), 0);
        for (i, backend) in self.backends.iter().enumerate() {
            let at = |field: &str| format!("backends[{i}].{field}");
            require(names.insert(&backend.name), at("name"), "another backend has this name")?;
            paths += u64::from(backend.paths);
            let range = backend.paths > 0 && paths <= MAX_PARTS as u64;
            let message = format!("must be at least 1, all backends together at most {MAX_PARTS}");
            require(range, at("paths"), message)?;
            backend
                .model
                .validate()
                .map_err(|invalid| error(at(invalid.name()), invalid.to_string()))?;
            if let Some(capacity) = backend.model.capacity() {
                let here = |volume: &&Volume| volume.backend.index() == i;
                let sizes = self.volumes.iter().filter(here).map(|volume| volume.size);
                let (_, wanted) = backend.model.regions(sizes);
                let message = format!(
                    "the volumes on it have {}, the device {}",
                    ByteCount(wanted),
                    ByteCount(capacity)
                );
                require(wanted <= capacity, at("blocks"), message)?;
            }
        }
        for (i, link) in self.links.iter().enumerate() {
            valid(&format!("links[{i}]"), &link.config)?;
        }
        Ok(())
    }

    fn check_workload(
        &self,
        at: &dyn Fn(&str) -> String,
        workload: &Workload,
    ) -> Result<(), PlanError> {
        if let Some(rate) = workload.arrivals.rate() {
            let range = rate > 0.0 && rate <= 1e9;
            require(range, at("rate"), "must be above 0 and at most 10^9 requests per second")?;
        }
        match workload.arrivals {
            Arrivals::Constant { jitter_permille, .. } => {
                require(jitter_permille <= 1_000, at("jitter"), "must be at most the whole gap")?;
            }
            Arrivals::Poisson { .. } => {}
            Arrivals::Closed { depth, think } => {
                let range = (1..=MAX_DEPTH).contains(&depth);
                require(range, at("depth"), format!("must be from 1 to {MAX_DEPTH}"))?;
                time(at("think"), think)?;
            }
        }
        count(&at("sizes"), workload.sizes.len(), MAX_PARTS)?;
        let sizes = &workload.sizes;
        require(sizes.iter().all(|s| s.bytes > 0), at("sizes"), "a size is at least 1 byte")?;
        let weights: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
        let range = (1..=u64::from(u32::MAX)).contains(&weights);
        require(range, at("sizes"), "the weights must sum up to 1 to 2^32 - 1")?;
        let reads = workload.read_permille <= 1_000;
        require(reads, at("reads"), "must be at most the whole")?;
        require(workload.alignment > 0, at("alignment"), "must be at least 1 byte")?;
        let inside = workload.region.end();
        let inside = inside.is_some_and(|end| end <= self.volumes[workload.volume.index()].size);
        require(inside, at("region"), "must end within the volume")?;
        let largest = sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
        let room = largest <= workload.region.length;
        require(room, at("region"), "must hold the largest size")?;
        if let Access::Zipf { skew } = workload.access {
            let range = skew > 0.0 && skew <= 10.0;
            require(range, at("skew"), "must be above 0 and at most 10")?;
        }
        time(at("start"), workload.start)?;
        if let Some(stop) = workload.stop {
            time(at("stop"), stop)?;
            require(stop > workload.start, at("stop"), "must be after the start")?;
        }
        Ok(())
    }

    fn check_trace(&self, at: &dyn Fn(&str) -> String, trace: &Trace) -> Result<(), PlanError> {
        let mut seen = BTreeSet::new();
        most(&at("devices"), trace.devices.len(), MAX_PARTS)?;
        let some = !trace.devices.is_empty() || trace.others.is_some();
        require(some, at("devices"), "no device of the trace has a volume")?;
        for device in &trace.devices {
            let message = format!("device {} is named twice", device.device);
            require(seen.insert(device.device), at("devices"), message)?;
            self.check_ids(at, (device.tenant, device.volume), trace.link)?;
        }
        if let Some(ids) = trace.others {
            self.check_ids(at, ids, trace.link)?;
        }
        require(trace.speed_permille > 0, at("speed"), "must be above 0")?;
        time(at("start"), trace.start)
    }

    fn check_ids(
        &self,
        at: &dyn Fn(&str) -> String,
        (tenant, volume): (TenantId, VolumeId),
        link: LinkId,
    ) -> Result<(), PlanError> {
        let known = tenant.index() < self.tenants.len();
        require(known, at("tenant"), "there is no such tenant")?;
        require(volume.index() < self.volumes.len(), at("volume"), "there is no such volume")?;
        require(link.index() < self.links.len(), at("link"), "there is no such link")
    }

    fn check_faults(&self) -> Result<(), PlanError> {
        most("path_faults", self.path_faults.len(), MAX_PARTS)?;
        let mut order: Vec<usize> = (0..self.path_faults.len()).collect();
        order.sort_by_key(|&i| self.path_faults[i].at);
        let mut down = BTreeMap::new();
        for i in order {
            let fault = &self.path_faults[i];
            let at = |field: &str| format!("path_faults[{i}].{field}");
            time(at("at"), fault.at)?;
            let backend = self.backends.get(fault.backend.index());
            let backend =
                backend.ok_or_else(|| error(at("backend"), "there is no such backend"))?;
            require(fault.path < backend.paths, at("path"), "the backend has no such path")?;
            let is_down = fault.change != PathChange::Up;
            let was_down = down.insert((fault.backend, fault.path), is_down).unwrap_or(false);
            let message = if is_down { "the path is not well already" } else { "the path is well" };
            require(is_down != was_down, at("change"), message)?;
            match fault.change {
                PathChange::Down { detect } => time(at("detect"), detect)?,
                PathChange::Slow { factor } => {
                    let range = format!("must be from 2 to {MAX_FACTOR}");
                    require((2..=MAX_FACTOR).contains(&factor), at("factor"), range)?;
                }
                PathChange::Stall | PathChange::Up => {}
            }
        }
        Ok(())
    }
}

fn error(field: impl Into<String>, message: impl Into<String>) -> PlanError {
    PlanError { field: field.into(), message: message.into() }
}

fn require(
    holds: bool,
    field: impl Into<String>,
    message: impl Into<String>,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(error(field, message)) }
}

/// Whether the values of a table are within their ranges; `part` is its place in the plan.
fn valid(part: &str, settings: &impl Settings) -> Result<(), PlanError> {
    let named = |invalid: Invalid| error(format!("{part}.{}", invalid.name()), invalid.to_string());
    settings.validate().map_err(named)
}

fn time(field: impl Into<String>, time: Duration) -> Result<(), PlanError> {
    require(time <= LONGEST, field, "must be at most 100 years")
}

fn most(field: &str, count: usize, most: usize) -> Result<(), PlanError> {
    require(count <= most, field, format!("there may be at most {most}, not {count}"))
}

fn count(field: &str, count: usize, limit: usize) -> Result<(), PlanError> {
    require(count > 0, field, "there must be at least one")?;
    most(field, count, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Model;
    use crate::plan::{PathFault, TraceDevice};
    use crate::testing;
    use weir_flow::request::BackendId;
    use weir_flow::units::Extent;
    use weir_model::mech;

    fn contract(iops: u32) -> Contract {
        Contract::new(iops, 4_096, Duration::from_millis(10))
    }

    fn mech(spoil: fn(&mut mech::Config)) -> Model {
        let mut config = mech::Config::default();
        spoil(&mut config);
        Model::Mech(config)
    }

    /// Makes a plan wrong in one way.
    type Spoil<'a> = &'a dyn Fn(&mut Plan);

    /// Each way to be wrong, and the field that is named for it.
    #[test]
    fn each_fault_names_its_field() {
        let device =
            |device| TraceDevice { device, tenant: TenantId::new(0), volume: VolumeId::new(0) };
        let trace = move |devices: &[u32]| Trace {
            path: "t".into(),
            format: None,
            link: LinkId::new(0),
            devices: devices.iter().copied().map(device).collect(),
            others: None,
            speed_permille: 1_000,
            start: Duration::ZERO,
        };
        let down = |path, change| PathFault {
            at: Duration::ZERO,
            backend: BackendId::new(0),
            path,
            change,
        };
        let table: &[(Spoil<'_>, &str)] = &[
            (&|p| p.tenants.clear(), "tenants"),
            (&|p| p.promises.contracts = vec![None, None], "contracts"),
            (&|p| p.promises.contracts = vec![Some(contract(0))], "contracts[0]"),
            (&|p| p.workloads.clear(), "workloads"),
            (&|p| p.end = End::default(), "workloads[0].stop"),
            (&|p| p.end.requests = Some(0), "end.requests"),
            (&|p| p.end.warm_up = Duration::from_secs(900), "end.warm_up"),
            (&|p| p.end.duration = Some(Duration::MAX), "end.duration"),
            (&|p| p.limits.max_requests = 0, "limits.max_requests"),
            (&|p| p.limits.max_bytes = u64::MAX, "limits.max_bytes"),
            (&|p| p.limits.max_tenant_requests = 0, "limits.max_tenant_requests"),
            (&|p| p.limits.max_tenant_bytes = 0, "limits.max_tenant_bytes"),
            (&|p| p.limits.link_window = u64::MAX, "limits.link_window"),
            (&|p| p.limits.report_after = Duration::ZERO, "limits.report_after"),
            (&|p| p.paths.slow_factor = 1, "paths.slow_factor"),
            (&|p| p.paths.overdue_min = Duration::from_secs(60), "paths.overdue_min"),
            (&|p| p.volumes[0].backend = BackendId::new(1), "volumes[0].backend"),
            (&|p| p.volumes[0].max_transfer = 1, "volumes[0].max_transfer"),
            (&|p| p.volumes[0].cap.burst = Duration::MAX, "volumes[0].cap"),
            (&|p| p.backends[0].paths = 0, "backends[0].paths"),
            (&|p| p.backends.push(p.backends[0].clone()), "backends[1].name"),
            (&|p| p.backends[0].model = mech(|m| m.window = 0), "backends[0].window"),
            (&|p| p.backends[0].model = mech(|m| m.stroke_ppm = 1 << 20), "backends[0].stroke_ppm"),
            (&|p| p.backends[0].model = mech(|m| m.disks = 6), "backends[0].disks"),
            (&|p| p.backends[0].model = mech(|m| m.links = 0), "backends[0].links"),
            (&|p| p.workloads.push(p.workloads[0].clone()), "workloads[1].name"),
            (&|p| p.workloads[0].volume = VolumeId::new(1), "workloads[0].volume"),
            (&|p| p.workloads[0].sizes[0].weight = 0, "workloads[0].sizes"),
            (&|p| p.workloads[0].region = Extent::new(u64::MAX, 9), "workloads[0].region"),
            (&|p| p.workloads[0].region.length = 1, "workloads[0].region"),
            (&|p| p.workloads[0].alignment = 0, "workloads[0].alignment"),
            (&|p| p.workloads[0].access = Access::Zipf { skew: f64::NAN }, "workloads[0].skew"),
            (
                &|p| p.workloads[0].arrivals = Arrivals::Poisson { rate: f64::INFINITY },
                "workloads[0].rate",
            ),
            (&|p| p.workloads[0].stop = Some(Duration::ZERO), "workloads[0].stop"),
            (&|p| p.traces.push(trace(&[])), "traces[0].devices"),
            (&|p| p.traces.push(trace(&[1, 1])), "traces[0].devices"),
            (&|p| p.path_faults.push(down(0, PathChange::Up)), "path_faults[0].change"),
            (&|p| p.path_faults.push(down(9, PathChange::Up)), "path_faults[0].path"),
            (
                &|p| p.path_faults.push(down(0, PathChange::Slow { factor: 1 })),
                "path_faults[0].factor",
            ),
        ];
        let good = testing::plan();
        assert_eq!(good.check(), Ok(()));
        for (spoil, field) in table {
            let mut plan = good.clone();
            spoil(&mut plan);
            assert_eq!(plan.check().unwrap_err().field, *field);
        }
    }
}
