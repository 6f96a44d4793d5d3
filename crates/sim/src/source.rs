//! A source of requests: a generator or a trace.

use crate::plan::{Plan, Trace};
use crate::trace::{Error, Reader};
use crate::workload::Generator;
use std::collections::BTreeMap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{LinkId, Request, Tag, TenantId, VolumeId};

/// A source of requests.
#[derive(Debug)]
pub(crate) enum Source {
    Generated(Box<Generator>),
    Recorded(Box<Recorded>),
}

/// A trace that is being played.
#[derive(Debug)]
pub(crate) struct Recorded {
    reader: Reader,
    devices: BTreeMap<u32, (TenantId, VolumeId)>,
    others: Option<(TenantId, VolumeId)>,
    link: LinkId,
    speed_permille: u64,
    start: Instant,
}

impl Source {
    /// The sources of a checked plan: its workloads, then its traces.
    pub(crate) fn all(plan: &Plan) -> Result<Vec<Self>, Error> {
        let generated = plan
            .workloads
            .iter()
            .map(|workload| Ok(Self::Generated(Box::new(Generator::new(workload, plan.seed)))));
        let recorded = plan
            .traces
            .iter()
            .map(|trace| Recorded::open(trace).map(|recorded| Self::Recorded(Box::new(recorded))));
        generated.chain(recorded).collect()
    }

    /// The next request of an open loop and when it comes.
    pub(crate) fn next(&mut self) -> Result<Option<(Instant, Request)>, Error> {
        match self {
            Self::Generated(generator) => {
                Ok(generator.next_arrival().map(|at| (at, generator.draw())))
            }
            Self::Recorded(recorded) => recorded.next(),
        }
    }
}

impl Recorded {
    fn open(trace: &Trace) -> Result<Self, Error> {
        let ids = trace.devices.iter().map(|d| (d.device, (d.tenant, d.volume)));
        Ok(Self {
            reader: Reader::open(&trace.path, trace.format)?,
            devices: ids.collect(),
            others: trace.others,
            link: trace.link,
            speed_permille: trace.speed_permille,
            start: Instant::ZERO + trace.start,
        })
    }

    fn next(&mut self) -> Result<Option<(Instant, Request)>, Error> {
        let Some(record) = self.reader.read()? else { return Ok(None) };
        let Some((tenant, volume)) = self.devices.get(&record.device).copied().or(self.others)
        else {
            let message = format!("the plan has no volume for device {}", record.device);
            let remedy = "add it to `devices`, or name a `volume` for all others";
            return Err(self.reader.error(message).remedy(remedy));
        };
        let nanos = u128::from(record.time.as_nanos()) * 1_000 / u128::from(self.speed_permille);
        // Half the clock's range, so that nothing that is added to it overflows.
        let nanos = u64::try_from(nanos).ok().filter(|&nanos| nanos < 1 << 62);
        let nanos = nanos.ok_or_else(|| self.reader.error("the time is past 146 years"))?;
        let request = Request {
            tag: Tag(0),
            tenant,
            volume,
            link: self.link,
            op: record.op,
            extent: record.extent,
            fua: false,
            ordered: false,
            job: false,
        };
        Ok(Some((self.start + Duration::from_nanos(nanos), request)))
    }
}
