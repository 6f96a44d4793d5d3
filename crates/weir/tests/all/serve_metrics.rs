//! The metrics of a live gateway: they agree with what hosts have done.

use crate::gateway::control::controlled;
use crate::gateway::{Gateway, folder};
use serde_json::json;

/// The value of a sample; a time in nanoseconds without its point.
fn value(page: &str, sample: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {sample} in\n{page}"));
    line.replace('.', "").parse().unwrap()
}

/// The sum of a family of times, in nanoseconds.
fn sum(page: &str, family: &str) -> u64 {
    let samples = page.lines().filter_map(|line| line.strip_prefix(family)?.rsplit_once(' '));
    samples.map(|(_, value)| value.replace('.', "").parse::<u64>().unwrap()).sum()
}

/// Requests and bytes are exactly those of the host, by volume and by tenant; the times by cause add up to the response
/// times to the nanosecond; a reload that was refused is seen; and the verb answers with the page that the command
/// prints.
#[test]
fn metrics_are_what_hosts_have_done() {
    let folder = folder("metrics");
    let tenant = "[[tenant]]\nname = \"one\"\ninitiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                  objectives = [{ size = 4096, iops = 100000, p99 = \"1h\" }]\n";
    let config = controlled(tenant);
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut one = gateway.session("one");
    for at in 0..10 {
        one.read(at * 4_096, 4_096);
    }
    let print = |gateway: &Gateway, arguments: &[&str]| {
        String::from_utf8(gateway.command(arguments).stdout).unwrap()
    };
    let page = print(&gateway, &["metrics"]);
    let tenant = "tenant=\"one\"";
    for (sample, wanted) in [
        ("weir_requests_total{op=\"read\",result=\"ok\"}".to_owned(), 10),
        ("weir_request_duration_seconds_count{op=\"read\"}".to_owned(), 10),
        ("weir_volume_requests_total{volume=\"disk\",op=\"read\",result=\"ok\"}".to_owned(), 10),
        ("weir_volume_io_bytes_total{volume=\"disk\",direction=\"read\"}".to_owned(), 40_960),
        ("weir_volume_size_bytes{volume=\"disk\"}".to_owned(), 64 << 20),
        ("weir_volume_state{volume=\"disk\",state=\"serving\"}".to_owned(), 1),
        (format!("weir_tenant_requests_total{{{tenant},op=\"read\"}}"), 10),
        (format!("weir_tenant_io_bytes_total{{{tenant},direction=\"read\"}}"), 40_960),
        (format!("weir_tenant_slo_requests_total{{{tenant}}}"), 10),
        (format!("weir_tenant_slo_missed_total{{{tenant}}}"), 0),
        ("weir_path_usable{backend=\"disk\",path=\"0\"}".to_owned(), 1),
        ("weir_sessions{protocol=\"iscsi\"}".to_owned(), 1),
        ("weir_config_last_reload_successful".to_owned(), 1),
    ] {
        assert_eq!(value(&page, &sample), wanted, "{sample}\n{page}");
    }
    let response = sum(&page, "weir_request_duration_seconds_sum");
    assert!(response > 0);
    assert_eq!(sum(&page, "weir_stage_seconds_total"), response, "{page}");
    assert_eq!(value(&page, &format!("weir_tenant_request_seconds_total{{{tenant}}}")), response);

    let open = print(&gateway, &["metrics", "--openmetrics"]);
    assert!(open.ends_with("# EOF\n") && !page.contains("# EOF"), "{open}");
    let answer = gateway.asked(&["metrics"]);
    assert_eq!(answer["version"], json!(1));
    let told = answer["metrics"].as_str().unwrap();
    assert_eq!(value(told, "weir_requests_total{op=\"read\",result=\"ok\"}"), 10);

    gateway.refuse_reload("[[volume", &["weir.toml:1:", "ERROR"]);
    let page = print(&gateway, &["metrics"]);
    assert_eq!(value(&page, "weir_config_last_reload_successful"), 0);
    gateway.stop();
}
