//! Tests of the counters and of both formats of the page.

use super::encode::encode;
use super::loads::{Latest, Moment};
use super::page::Format;
use super::snapshot::Snapshot;
use super::{Metrics, TENANTS_MAX};
use weir_flow::account::Scored;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Notice, Tier};
use weir_flow::error::IoError;
use weir_flow::event::{Completed, StageTimes, Trail};
use weir_flow::request::{LinkId, Op, Outcome, Request, Tag, TenantId, VolumeId};
use weir_flow::units::Extent;

pub(super) fn request(tenant: u32, op: Op, length: u64) -> Request {
    Request {
        tag: Tag(0),
        tenant: TenantId::new(tenant),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        op,
        extent: Extent::new(0, length),
        fua: false,
        ordered: false,
        job: false,
    }
}

pub(super) fn complete(
    metrics: &Metrics,
    request: &Request,
    outcome: Outcome,
    scored: Option<Scored>,
) {
    let times = StageTimes::default();
    let (arrived, row) = (Instant::ZERO, None);
    let completed =
        Completed { request, row, arrived, times: &times, outcome, trail: Trail::default() };
    let tenant = format!("tenant {}", request.tenant.index());
    metrics.completed(&completed, scored, (|| "disk \"a\\b\"\n".to_owned(), || tenant));
}

fn page(metrics: &Metrics, format: Format) -> String {
    String::from_utf8(encode(metrics, &Snapshot::default(), format)).unwrap()
}

/// A request counts under its class, its result and its tenant; data only if it ended well; an objective that was
/// missed as one miss, and what it allows as that fraction.
#[test]
fn requests_are_counted_once() {
    let metrics = Metrics::new(0);
    let scored =
        |missed| Some(Scored { missed, target: Duration::from_millis(1), allowed_ppm: 10_000 });
    complete(&metrics, &request(0, Op::Read, 4_096), Ok(()), scored(false));
    complete(&metrics, &request(0, Op::Read, 512), Err(IoError::Medium), scored(true));
    complete(&metrics, &request(0, Op::Read, 1_024), Ok(()), None);
    complete(&metrics, &request(0, Op::Update, 8_192), Ok(()), None);
    complete(&metrics, &request(0, Op::Write, 512), Ok(()), None);
    complete(&metrics, &request(0, Op::Discard, 65_536), Ok(()), None);
    let names = (String::new, String::new);
    metrics.refused(&request(0, Op::Write, 1_024), scored(true), names);
    metrics.control(Notice::Infeasible(TenantId::new(0), true), |_| String::new());
    metrics.control(Notice::Scaled(Tier::Silver, 750_000), |_| String::new());
    let text = page(&metrics, Format::Text);
    for line in [
        "weir_requests_total{op=\"read\",result=\"ok\"} 2",
        "weir_requests_total{op=\"read\",result=\"error\"} 1",
        "weir_requests_total{op=\"write\",result=\"ok\"} 2",
        "weir_requests_total{op=\"write\",result=\"refused\"} 1",
        "weir_requests_total{op=\"other\",result=\"ok\"} 1",
        "weir_request_duration_seconds_count{op=\"read\"} 2",
        "weir_volume_io_bytes_total{volume=\"disk \\\"a\\\\b\\\"\\n\",direction=\"read\"} 5120",
        "weir_tenant_io_bytes_total{tenant=\"tenant 0\",direction=\"write\"} 8704",
        "weir_tenant_requests_total{tenant=\"tenant 0\",op=\"read\"} 3",
        "weir_tenant_refused_total{tenant=\"tenant 0\"} 1",
        "weir_tenant_slo_requests_total{tenant=\"tenant 0\"} 3",
        "weir_tenant_slo_missed_total{tenant=\"tenant 0\"} 2",
        "weir_tenant_slo_allowed_total{tenant=\"tenant 0\"} 0.03",
        "weir_control_infeasible{tenant=\"tenant 0\"} 1",
        "weir_control_tier_scale_ratio{tier=\"silver\"} 0.75",
        "weir_control_tier_scale_ratio{tier=\"gold\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

/// Tenants beyond the limit are summed under `_other` and counted; nothing that they did is missing.
#[test]
fn tenants_beyond_the_limit_are_summed() {
    let metrics = Metrics::new(0);
    for tenant in 0..TENANTS_MAX as u32 + 7 {
        complete(&metrics, &request(tenant, Op::Read, 512), Ok(()), None);
    }
    let text = page(&metrics, Format::Text);
    let reads = |line: &&str| {
        line.starts_with("weir_tenant_requests_total{") && line.contains("op=\"read\"")
    };
    assert_eq!(text.lines().filter(reads).count() as u64, TENANTS_MAX + 1);
    assert!(text.contains("weir_tenant_requests_total{tenant=\"_other\",op=\"read\"} 7\n"));
    assert!(text.contains("weir_metrics_left_out{kind=\"tenant\"} 7\n"));
    assert!(text.contains("weir_requests_total{op=\"read\",result=\"ok\"} 10007\n"));
}

/// The series of a volume that has gone are not there, its counts stay in the sums, and it continues to count if it comes
/// back.
#[test]
fn a_volume_that_has_gone_stays_in_sums() {
    let metrics = Metrics::new(0);
    let read = request(0, Op::Read, 512);
    let bytes = |text: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with("weir_volume_io_bytes_total{"));
        lines.find(|line| line.contains("direction=\"read\"")).map(str::to_owned)
    };
    complete(&metrics, &read, Ok(()), None);
    metrics.volume_went(read.volume);
    let text = page(&metrics, Format::Text);
    assert_eq!(bytes(&text), None);
    assert!(text.contains("weir_requests_total{op=\"read\",result=\"ok\"} 1\n"), "{text}");
    let sample = metrics.sample(&Moment::default());
    assert_eq!((sample.volumes.len(), sample.all.requests), (0, 1));
    metrics.volume_came(read.volume, || unreachable!("it has a block"));
    complete(&metrics, &read, Ok(()), None);
    let text = page(&metrics, Format::Text);
    assert!(bytes(&text).is_some_and(|line| line.ends_with(" 1024")), "{text}");
    assert_eq!(metrics.sample(&Moment::default()).volumes.len(), 1);
}

/// `OpenMetrics` has the same samples as the text format, names the family of a counter without `_total`, names units,
/// and ends in `# EOF`.
#[test]
fn both_formats_have_the_same_samples() {
    let metrics = Metrics::new(0);
    complete(&metrics, &request(0, Op::Read, 4_096), Ok(()), None);
    let (text, open) = (page(&metrics, Format::Text), page(&metrics, Format::OpenMetrics));
    let samples = |page: &str| {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let steady = samples.filter(|line| !line.starts_with("process_"));
        steady.filter(|line| !line.contains("start_time")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(samples(&text), samples(&open));
    assert!(text.contains("# TYPE weir_requests_total counter\n"));
    assert!(open.contains("# TYPE weir_requests counter\n"));
    assert!(open.contains("# UNIT weir_request_duration_seconds seconds\n"));
    assert!(open.ends_with("# EOF\n") && !text.contains("# EOF"));
}

/// A name that is too long is cut, and ends in a hash that tells it from others.
#[test]
fn long_names_are_cut() {
    let metrics = Metrics::new(0);
    let names = ["é".repeat(100), "é".repeat(101)];
    for (tenant, name) in (0..).zip(&names) {
        metrics.tenant(TenantId::new(tenant), || name.clone());
    }
    let text = page(&metrics, Format::Text);
    let refused = text.lines().filter_map(|line| {
        line.strip_prefix("weir_tenant_refused_total{tenant=\"")?.strip_suffix("\"} 0")
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|name| name.len() <= 128 && name.starts_with('é')), "{refused:?}");
    assert_ne!(refused[0], refused[1]);
}

/// A time in a stage is counted under its rule, and the rules of a stage add up to its histogram.
#[test]
fn rules_add_up_to_their_stage() {
    let metrics = Metrics::new(0);
    let (one, two) = (weir_flow::policy::Rule(&"control/a"), weir_flow::policy::Rule(&"control/b"));
    for (rule, micros) in [(one, 100), (two, 200), (one, 300)] {
        metrics.stages[2].record(rule, Duration::from_micros(micros));
    }
    let text = page(&metrics, Format::Text);
    for line in [
        "weir_stage_seconds_total{stage=\"control\",rule=\"control/a\"} 0.000400000",
        "weir_stage_seconds_total{stage=\"control\",rule=\"control/b\"} 0.000200000",
        "weir_stage_requests_total{stage=\"control\",rule=\"control/a\"} 2",
        "weir_stage_duration_seconds_bucket{stage=\"control\",le=\"0.000131072\"} 1",
        "weir_stage_duration_seconds_bucket{stage=\"control\",le=\"+Inf\"} 3",
        "weir_stage_duration_seconds_sum{stage=\"control\"} 0.000600000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

/// A sample has the volumes and tenants that were busiest of late, with the objective of each tenant, and the sum of all volumes,
/// also of those that it leaves out.
#[test]
fn a_sample_has_the_busiest_and_the_sum_of_all() {
    let metrics = Metrics::new(0);
    for number in 0..150 {
        let volume = VolumeId::new(number);
        let request = Request { volume, ..request(number, Op::Read, 512) };
        complete(&metrics, &request, Ok(()), None);
    }
    let (volume, tenant) = (VolumeId::new(120), TenantId::new(130));
    let latest = vec![Latest { volume, tenant, times: StageTimes::default() }];
    let mut objectives = vec![None; 131];
    objectives[tenant.index()] = Some(Duration::from_millis(41));
    let moment = Moment { latest, objectives: objectives.into(), ..Moment::default() };
    let sample = metrics.sample(&moment);
    assert_eq!((sample.all.requests, sample.all.bytes), (150, 150 * 512));
    assert_eq!(sample.all.times.iter().map(|bucket| bucket.requests).sum::<u64>(), 150);
    assert_eq!((sample.volumes.len(), sample.volumes_left_out), (100, 50));
    assert_eq!((sample.tenants.len(), sample.tenants_left_out), (100, 50));
    let busiest = &sample.tenants[0];
    assert_eq!((&busiest.name[..], busiest.objective_ns), ("tenant 130", Some(41_000_000)));
    assert_eq!(sample.tenants[1].objective_ns, None);
}
