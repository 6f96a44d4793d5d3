use super::*;
use weir_flow::request::Op;
use weir_flow::units::Extent;

/// The response times of `count` reads of `bytes`, which come as a Poisson process of `rate` per
/// second.
fn poisson_responses(config: Config, rate: f64, bytes: u64, count: u64) -> Vec<u64> {
    let mut array = Array::new(config, 1, "test");
    let mut gaps = Rng::stream(1, "gaps");
    let (mut arrived, mut responses) = (Vec::new(), Vec::new());
    let mut arrival = 0.0;
    for id in 0..count {
        arrival += -libm::log(1.0 - gaps.unit()) / rate * 1e9;
        let now = Instant::from_nanos(arrival as u64);
        while let Some(at) = array.next().filter(|&at| at <= now) {
            while let Some((id, outcome)) = array.finished(at) {
                assert_eq!(outcome, Ok(()));
                responses.push(at.since(arrived[id as usize]).as_nanos());
            }
        }
        arrived.push(now);
        array.start(now, DeviceIo { id, op: Op::Read, extent: Extent::new(0, bytes), fua: false });
    }
    responses
}

fn mean(responses: &[u64]) -> f64 {
    responses.iter().sum::<u64>() as f64 / responses.len() as f64
}

/// The mean response time agrees with the Pollaczek-Khinchine formula: at 2500 requests of 4 KiB
/// per second each disk is an M/G/1 queue with rho = 0.45, and bus and link, hardly used, add their
/// own service times. That is 2.18 ms.
#[test]
fn agrees_with_pollaczek_khinchine() {
    let (config, rate, count) = (Config::default(), 2_500.0, 1_000_000);
    let service = config.mean_service.as_nanos() as f64;
    let lambda = rate / f64::from(config.disks) / 1e9;
    // The variance of a uniform variable of width `service` is service^2 / 12.
    let second_moment = service * service * (1.0 + 1.0 / 12.0);
    let wait = lambda * second_moment / (2.0 * (1.0 - lambda * service));
    let fabric = [config.bus, config.link].map(|rate| rate.time_for(4_096).as_nanos() as f64);
    let predicted = service + wait + fabric[0] + fabric[1];
    assert!((predicted / 1e6 - 2.18).abs() < 0.005, "{predicted}");

    let responses = poisson_responses(config, rate, 4_096, count);
    let measured = mean(&responses);
    // A response has a standard deviation of about 1 ms. Neighbours in one disk's queue resemble
    // each other, which at rho = 0.45 leaves about one independent value in four: the mean has a
    // standard error of 1 ms / sqrt(250 000) = 2 us. Waiting for bus and link, which the formula
    // leaves out, adds about 10 us.
    let (low, high) = (predicted - 8_000.0, predicted + 18_000.0);
    assert!((low..high).contains(&measured), "predicted {predicted} ns, measured {measured} ns");
}

/// Near saturation, at 5000 requests of 4 KiB per second, the 99th percentile agrees with the tail of
/// an M/G/1 queue, `P(response > t) = c * E[e^(theta S)] * e^(-theta t)` (Cramér and Lundberg), where
/// `lambda * (E[e^(theta S)] - 1) = theta`. That is 36.6 ms.
#[test]
fn p99_agrees_with_the_tail_of_the_queue() {
    let config = Config::default();
    let mean = config.mean_service.as_secs_f64();
    let lambda = 5_000.0 / f64::from(config.disks);
    // E[e^(theta S)] for S uniform from half to one and a half of the mean.
    let generating = |theta: f64| {
        let (low, high) = (theta * mean * 0.5, theta * mean * 1.5);
        (libm::exp(high) - libm::exp(low)) / (high - low)
    };
    let (mut low, mut high) = (1.0, 1_000.0);
    for _ in 0..100 {
        let theta = f64::midpoint(low, high);
        let below = lambda * (generating(theta) - 1.0) < theta;
        (low, high) = if below { (theta, high) } else { (low, theta) };
    }
    let slope = (generating(low + 1e-3) - generating(low - 1e-3)) / 2e-3;
    let c = (1.0 - lambda * mean) / (lambda * slope - 1.0);
    let fabric = config.bus.time_for(4_096) + config.link.time_for(4_096);
    let predicted = libm::log(c * generating(low) * 100.0) / low + fabric.as_secs_f64();
    assert!((predicted - 0.0366).abs() < 1e-4, "{predicted}");

    let mut responses = poisson_responses(config, 5_000.0, 4_096, 1_500_000);
    responses.sort_unstable();
    let p99 = responses[responses.len() * 99 / 100] as f64 / 1e9;
    // The percentile of 10 s has a standard deviation of 6 ms, that of these 300 s one of 1.1 ms.
    assert!((p99 - predicted).abs() < 0.0035, "predicted {predicted} s, measured {p99} s");
}

/// Alone in the array, a large read takes its disk, its bus and its link one after the other, to
/// the nanosecond.
#[test]
fn an_idle_array_adds_the_three_services() {
    let config = Config::default();
    let mut array = Array::new(config, 1, "test");
    let bytes = 32_768;
    array.start(
        Instant::ZERO,
        DeviceIo { id: 5, op: Op::Read, extent: Extent::new(0, bytes), fua: false },
    );
    let (end, ended) = loop {
        let at = array.next().unwrap();
        if let Some(ended) = array.finished(at) {
            break (at, ended);
        }
    };
    assert_eq!(ended, (5, Ok(())));
    assert_eq!(array.next(), None);
    let fixed = config.media.time_for(bytes - 4_096)
        + config.bus.time_for(bytes)
        + config.link.time_for(bytes);
    let random = end.since(Instant::ZERO) - fixed;
    assert!((721_500..2_164_500).contains(&random.as_nanos()), "{random}");
}

/// One seed and name give one sequence; another name gives another.
#[test]
fn streams_belong_to_the_array() {
    let first = |name| {
        let mut array = Array::new(Config::default(), 1, name);
        array.start(
            Instant::ZERO,
            DeviceIo { id: 0, op: Op::Read, extent: Extent::new(0, 1), fua: false },
        );
        array.next()
    };
    assert_eq!(first("a"), first("a"));
    assert_ne!(first("a"), first("b"));
}
