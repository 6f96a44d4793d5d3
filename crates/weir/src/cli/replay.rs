//! `weir replay`: replays a trace on a modelled device, or a recording of `weir serve`.

mod what_if;

use super::progress::Progress;
use super::sim::simulate;
use super::{report, trace};
use crate::config::backend::NVME;
use crate::config::policy;
use crate::config::source::reason;
use crate::config::units::{SIZE, TIME};
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::path::Settings;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::recording::MAGIC;
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::settings::Settings as _;
use weir_flow::{cache, control, dispatch, path, policy::Choice, transfer};
use weir_model::{array, fixed, mech, ssd};
use weir_sim::plan::{
    Backend, End, HostLink, MAX_PARTS, MAX_TENANTS, Model, Plan, TraceDevice, Volume,
};
use weir_sim::replay::{ReplayError, Verdict, replay};
use weir_sim::trace::{Format, Info};
use weir_sim::whatif::{Arrivals, Device, Question, Rules};

/// Replay a trace on a modelled device, or a recording of `weir serve`
///
/// A trace runs through the data path as in `weir sim`: each of its devices becomes a volume and a tenant, all on one
/// modelled device. The options are a short form of a plan.
///
/// A recording (from `weir serve --record`) carries its configuration. Its inputs run through the same data path and
/// must give the same actions; the exit code is 5 if they do not, and 6 if the recording is damaged or ends before
/// its digest.
///
/// With a policy, a cache, `--config`, `--device`, `--arrivals` or `--depth`, a recording is asked what would have been,
/// beside what was. The exit code is 9 if the recording cannot answer.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Replay {
    /// The trace (docs/reference/traces.md) or the recording
    trace: PathBuf,
    /// The modelled device: `array-m1`, `array-m2`, `ssd-paper`, `ssd-nvme[:SIZE]`, or `fixed:SERVICE[,servers=N]`
    ///
    /// Of a recording also `recorded` and `fitted`. An SSD without a size is as large as the trace needs.
    #[arg(long, value_name = "MODEL", value_parser = device)]
    device: Option<DeviceOption>,
    /// Contracts, caps, shares, limits, cache and policies of this configuration or plan, for a recording
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How requests of a recording arrive: by what each session was found to do, when they did, or each after a reply
    #[arg(long, value_enum, value_name = "HOW")]
    arrivals: Option<How>,
    /// The most requests that each session of a recording has outstanding
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    depth: Option<u32>,
    /// Runs of a recording with a modelled device, each with other random numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: Option<u32>,
    /// Size of the read cache, such as `64MiB`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache_size: Option<u64>,
    /// Eviction policy of the read cache, such as `lru`
    #[arg(long, value_name = "POLICY", value_parser = cache_policy)]
    cache: Option<Choice<cache::evict::Build>>,
    /// Prefetch policy of the read cache
    #[arg(long, value_name = "POLICY", value_parser = prefetch_policy)]
    prefetch: Option<Choice<cache::prefetch::Build>>,
    /// Policy of the control stage, such as `ta1`
    #[arg(long, value_name = "POLICY", value_parser = control_policy)]
    control: Option<Choice<control::Build>>,
    /// Policy of the dispatch stage
    #[arg(long, value_name = "POLICY", value_parser = dispatch_policy)]
    dispatch: Option<Choice<dispatch::Build>>,
    /// Policy of the path stage
    #[arg(long, value_name = "POLICY", value_parser = path_policy)]
    path: Option<Choice<path::Build>>,
    /// Policy of the transfer stage
    #[arg(long, value_name = "POLICY", value_parser = transfer_policy)]
    transfer: Option<Choice<transfer::Build>>,
    /// Speed: 1 is as recorded, 2 twice as fast
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    speed: Option<u64>,
    /// Format of the trace; the default is to find it from the content
    #[arg(long, value_parser = trace::format)]
    format: Option<Format>,
    /// Seed of all random streams
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The device of the command line.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceOption {
    device: Device,
    /// Its size was not given: it is as large as the trace needs.
    grows: bool,
}

/// How requests of a recording arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    Auto,
    Open,
    Closed,
}

impl Replay {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        if is_recording(&self.trace)? { self.recording(color) } else { self.simulation() }
    }

    fn recording(self, color: Color) -> Result<Exit, Failure> {
        let given = [
            ("--speed", self.speed.is_some()),
            ("--format", self.format.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            let message = format!("`{option}` is not for a recording");
            return Err(Failure::new(Exit::Usage, message, "leave it out: it is for traces"));
        }
        let asked = self.asked();
        if !asked.is_empty() {
            let config = self.config.as_deref();
            let rules = config.map(|path| what_if::rules(path, color)).transpose()?;
            let asked = asked.join(", ");
            let (path, json) = (self.trace.clone(), self.json);
            return what_if::answer(&path, &self.question(rules), &asked, json);
        }
        let bar = Progress::new();
        let result = replay(&self.trace, |entries| bar.show(None, format!("{entries} entries")));
        drop(bar);
        let name = self.trace.display();
        let result = result.map_err(|error| failure(&self.trace, error))?;
        let (verdict, told, exit) = verdict(&result);
        if self.json {
            let replay = serde_json::to_value(&result);
            let replay = replay.map_err(|error| Failure::unexpected(error.to_string()))?;
            let name = name.to_string();
            print_json(&json!({
                "version": 1, "recording": name, "verdict": verdict, "replay": replay,
            }))?;
            return Ok(exit);
        }
        let seconds = result.virtual_ns as f64 / 1e9;
        let mut text = format!(
            "{name}: {} entries, {seconds:.3} s\n\
             {} requests arrived: {} answered, {} refused\n\
             replayed  digest {}, {} actions\n",
            result.entries,
            result.arrived,
            result.completed,
            result.refused,
            result.digest,
            result.actions
        );
        if let Some(recorded) = &result.recorded {
            let (digest, actions) = (&recorded.digest, recorded.actions);
            let _ = writeln!(text, "recorded  digest {digest}, {actions} actions");
        }
        let _ = writeln!(text, "{told}");
        print(&text)?;
        Ok(exit)
    }

    /// The options that ask what would have been.
    fn asked(&self) -> Vec<String> {
        fn policy<B>(choice: Option<&Choice<B>>) -> Option<String> {
            choice.map(|choice| choice.policy().name.to_owned())
        }
        let config = self.config.as_ref().map(|path| path.display().to_string());
        let device = self.device.map(|option| match option.device {
            Device::Auto => "auto".to_owned(),
            Device::Recorded => "recorded".to_owned(),
            Device::Fitted => "fitted".to_owned(),
            Device::Named(_) => "a model".to_owned(),
        });
        let arrivals = self.arrivals.map(|how| format!("{how:?}").to_lowercase());
        let size = self.cache_size.map(|size| format!("{size} bytes"));
        let given = [
            ("configuration", config),
            ("cache", policy(self.cache.as_ref())),
            ("cache size", size),
            ("prefetch", policy(self.prefetch.as_ref())),
            ("control", policy(self.control.as_ref())),
            ("dispatch", policy(self.dispatch.as_ref())),
            ("path", policy(self.path.as_ref())),
            ("transfer", policy(self.transfer.as_ref())),
            ("device", device),
            ("arrivals", arrivals),
            ("depth", self.depth.map(|depth| depth.to_string())),
            ("seeds", self.seeds.map(|seeds| seeds.to_string())),
        ];
        let given = given.into_iter().filter_map(|(what, value)| Some((what, value?)));
        given.map(|(what, value)| format!("{what} = {value}")).collect()
    }

    fn question(self, rules: Option<Rules>) -> Question {
        Question {
            rules,
            cache: self.cache,
            prefetch: self.prefetch,
            control: self.control,
            dispatch: self.dispatch,
            path: self.path,
            transfer: self.transfer,
            cache_size: self.cache_size,
            device: self.device.unwrap_or_default().device,
            arrivals: match self.arrivals.unwrap_or(How::Auto) {
                How::Auto => Arrivals::Auto,
                How::Open => Arrivals::Open,
                How::Closed => Arrivals::Closed,
            },
            depth: self.depth,
            seeds: self.seeds.unwrap_or(SEEDS),
        }
    }

    /// The first given option that is for recordings only.
    fn recording_option(&self) -> Option<&'static str> {
        let device = self.device.unwrap_or_default().device;
        let recorded = matches!(device, Device::Recorded | Device::Fitted);
        let given = [
            ("--config", self.config.is_some()),
            ("--device recorded` or `--device fitted", recorded),
            ("--arrivals", self.arrivals.is_some()),
            ("--depth", self.depth.is_some()),
            ("--seeds", self.seeds.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    fn simulation(self) -> Result<Exit, Failure> {
        if let Some(option) = self.recording_option() {
            let message = format!("`{option}` is not for a trace");
            let help = "leave it out: it is for recordings of `weir serve --record`";
            return Err(Failure::new(Exit::Usage, message, help));
        }
        let info = trace::info(&self.trace, self.format)?;
        if info.requests == 0 {
            let message = format!("`{}` has no requests", self.trace.display());
            return Err(Failure::new(Exit::Invalid, message, "name a trace that has requests"));
        }
        let (json, name) = (self.json, self.trace.display().to_string());
        let plan = self.plan(&info);
        let results = simulate(&plan)?;
        if json {
            let results = serde_json::to_value(&results);
            let results = results.map_err(|error| Failure::unexpected(error.to_string()))?;
            print_json(&json!({ "version": 1, "trace": name, "results": results }))?;
        } else {
            let mut text = report::text(&results);
            if results.totals.refused > 0 {
                let _ = writeln!(
                    text,
                    "warning: {} requests were refused at a limit and are in no percentile: do not compare these with \
                     those of a run that refused others",
                    results.totals.refused
                );
            }
            let _ = writeln!(text, "digest {}, seed {}", results.digest, results.seed);
            print(&text)?;
        }
        Ok(Exit::Success)
    }

    /// Each device of the trace as a volume and a tenant; one for all if there are too many.
    fn plan(self, info: &Info) -> Plan {
        let option = self.device.unwrap_or_default();
        let backend = BackendId::new(0);
        let volume = |name: String, size: u64| Volume {
            name,
            size: size.max(1),
            backend,
            max_transfer: u64::MAX,
            cap: Cap::default(),
        };
        let mut plan = Plan {
            seed: self.seed.unwrap_or(1),
            end: End { drain: true, ..End::default() },
            tenants: Vec::new(),
            promises: Promises::default(),
            shares: weir_flow::dispatch::Shares::default(),
            volumes: Vec::new(),
            backends: vec![Backend {
                name: "device".to_owned(),
                model: match option.device {
                    Device::Named(model) => model,
                    _ => Model::Array(array::Config::default()),
                },
                paths: 1,
            }],
            links: vec![HostLink::infinite("host")],
            workloads: Vec::new(),
            traces: Vec::new(),
            path_faults: Vec::new(),
            policies: Policies::default(),
            limits: Limits::default(),
            paths: Settings::default(),
            cache: cache::Settings {
                size: self.cache_size.unwrap_or(0),
                ..cache::Settings::default()
            },
        };
        let (mut devices, mut others) = (Vec::new(), None);
        if info.devices.len() > MAX_TENANTS {
            let size = info.devices.iter().map(|device| device.capacity_bytes).max();
            plan.tenants.push("all".to_owned());
            plan.volumes.push(volume("all".to_owned(), size.unwrap_or(1)));
            others = Some((TenantId::new(0), VolumeId::new(0)));
        } else {
            for (index, device) in (0..).zip(&info.devices) {
                let name = format!("dev{}", device.device);
                plan.tenants.push(name.clone());
                plan.volumes.push(volume(name, device.capacity_bytes));
                let (tenant, volume) = (TenantId::new(index), VolumeId::new(index));
                devices.push(TraceDevice { device: device.device, tenant, volume });
            }
        }
        let model = &mut plan.backends[0].model;
        if let Model::Ssd(config) = *model
            && option.grows
        {
            let (_, end) = model.regions(plan.volumes.iter().map(|volume| volume.size));
            if end > config.capacity() {
                *model = Model::Ssd(config.with_capacity(end));
            }
        }
        plan.traces.push(weir_sim::plan::Trace {
            path: self.trace,
            format: self.format,
            link: LinkId::new(0),
            devices,
            others,
            speed_permille: self.speed.unwrap_or(1_000),
            start: Duration::ZERO,
        });
        let default = Policies::default();
        plan.policies = Policies {
            cache: self.cache.unwrap_or(default.cache),
            prefetch: self.prefetch.unwrap_or(default.prefetch),
            control: self.control.unwrap_or(default.control),
            dispatch: self.dispatch.unwrap_or(default.dispatch),
            path: self.path.unwrap_or(default.path),
            transfer: self.transfer.unwrap_or(default.transfer),
        };
        plan
    }
}

/// A recording that cannot be replayed.
pub(super) fn failure(path: &Path, error: ReplayError) -> Failure {
    let name = path.display();
    match error {
        ReplayError::Io(error) => {
            let message = format!("cannot read `{name}`: {}", reason(&error));
            Failure::new(Exit::Invalid, message, "name a readable recording")
        }
        ReplayError::Damaged { offset, message } => Failure::new(
            Exit::Damaged,
            format!("{name}: byte {offset}: {message}"),
            "record the run again; the bytes before this offset are good",
        ),
    }
}

/// How a replay compares with the recorded run: for scripts, for people and for the shell.
pub(super) fn verdict(replay: &weir_sim::replay::Replay) -> (&'static str, &'static str, Exit) {
    match replay.verdict() {
        Verdict::Same => ("same", "the same actions at the same times", Exit::Success),
        Verdict::Different => {
            ("different", "the actions differ from the recorded ones", Exit::Diverged)
        }
        Verdict::Cut => (
            "cut",
            "the recording ends without a digest to compare with: `weir serve` was killed",
            Exit::Damaged,
        ),
    }
}

/// Whether the file begins as recordings do, whatever their version.
pub(super) fn is_recording(path: &Path) -> Result<bool, Failure> {
    let cannot = |why: String| {
        let message = format!("cannot read `{}`: {why}", path.display());
        Failure::new(Exit::Invalid, message, "name a readable trace or recording")
    };
    if path == Path::new(trace::STDIN) {
        let message = "standard input can be read only once, and this command reads the file twice";
        return Err(Failure::new(Exit::Usage, message, "write it to a file, and name that"));
    }
    if path.is_dir() {
        return Err(cannot("it is a directory".to_owned()));
    }
    let prefix = &MAGIC[..MAGIC.len() - 1];
    let mut first = Vec::new();
    let file = File::open(path).map_err(|error| cannot(reason(&error)))?;
    file.take(prefix.len() as u64)
        .read_to_end(&mut first)
        .map_err(|error| cannot(reason(&error)))?;
    Ok(first == prefix)
}

fn device(text: &str) -> Result<DeviceOption, String> {
    let device = match text {
        "recorded" => Device::Recorded,
        "fitted" => Device::Fitted,
        _ => Device::Named(model(text)?),
    };
    Ok(DeviceOption { device, grows: matches!(text, "ssd-paper" | "ssd-nvme") })
}

fn model(text: &str) -> Result<Model, String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match (name, rest) {
        ("array-m1", "") => Ok(Model::Array(array::Config::default())),
        ("array-m2", "") => Ok(Model::Mech(mech::Config::default())),
        ("ssd-paper", "") => Ok(Model::Ssd(ssd::Config::paper())),
        ("ssd-nvme", "") => Ok(Model::Ssd(ssd::Config::nvme(NVME))),
        ("ssd-nvme", text) => {
            let config = ssd::Config::nvme(size(text)?);
            config
                .validate()
                .map_err(|invalid| format!("{invalid}; write another size"))?;
            Ok(Model::Ssd(config))
        }
        ("fixed", rest) => {
            let mut config = fixed::Config::default();
            for (index, part) in rest.split(',').filter(|part| !part.is_empty()).enumerate() {
                match (index, part.split_once('=')) {
                    (0, None) => {
                        let service = TIME.parse(part);
                        let service =
                            service.map_err(|bad| format!("{}; {}", bad.message, bad.help))?;
                        config.service = Duration::from_nanos(service);
                    }
                    (_, Some(("servers", number))) => {
                        let servers =
                            number.parse().ok().filter(|n| (1..=MAX_PARTS as u32).contains(n));
                        config.servers = servers
                            .ok_or("`servers` is a number from 1 to 65536, as in `servers=8`")?;
                    }
                    _ => return Err(format!("`{part}` is not known; there is `servers=N`")),
                }
            }
            Ok(Model::Fixed(config))
        }
        _ => Err("write `array-m1`, `array-m2`, `ssd-paper`, `ssd-nvme:64GiB`, or `fixed:100us,servers=8`".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    SIZE.parse(text).map_err(|bad| format!("{}; {}", bad.message, bad.help))
}

fn speed(text: &str) -> Result<u64, String> {
    let factor: f64 = text.parse().map_err(|_| "write a number such as 2 or 0.5".to_owned())?;
    if !(0.001..=1e9).contains(&factor) {
        return Err("write a number from 0.001 to 1000000000".to_owned());
    }
    Ok((factor * 1e3).round() as u64)
}

fn prefetch_policy(text: &str) -> Result<Choice<cache::prefetch::Build>, String> {
    policy::parse(cache::prefetch::POLICIES, text)
}

fn cache_policy(text: &str) -> Result<Choice<cache::evict::Build>, String> {
    policy::parse(cache::evict::POLICIES, text)
}

fn control_policy(text: &str) -> Result<Choice<control::Build>, String> {
    policy::parse(control::POLICIES, text)
}

fn dispatch_policy(text: &str) -> Result<Choice<dispatch::Build>, String> {
    policy::parse(dispatch::POLICIES, text)
}

fn path_policy(text: &str) -> Result<Choice<path::Build>, String> {
    policy::parse(path::POLICIES, text)
}

fn transfer_policy(text: &str) -> Result<Choice<transfer::Build>, String> {
    policy::parse(transfer::POLICIES, text)
}

/// Runs of a question with a modelled device.
const SEEDS: u32 = 10;
