//! Laws of [`StorePolicy`](weir_flow::store::StorePolicy).

use crate::{STEPS, Source};
use weir_flow::error::IoError;
use weir_flow::policy::Choice;
use weir_flow::store::{POLICIES, Verdict};

/// Retries that no policy may exceed for one request.
const RETRIES_MAX: u32 = 100;

/// Success is delivered as success at once; a failure is delivered, unchanged in kind, after a
/// bounded number of retries.
#[test]
fn delivers_what_the_device_says() {
    for policy in POLICIES {
        let choice = Choice::named(POLICIES, policy.name).expect("it is in the list");
        let mut store = (choice.policy().build)(choice.values());
        let mut source = Source::new(1, "store");
        for _ in 0..STEPS {
            let now = source.tick();
            let (key, request) = source.request();
            let code = source.rng.below(8) as u8;
            let outcome = IoError::from_code(code).map_or(Ok(()), Err);
            let mut retries = 0;
            loop {
                store.start(now, key, &request);
                match store.finish(now, key, &request, outcome) {
                    Verdict::Deliver(delivered) => break assert_eq!(delivered, outcome),
                    Verdict::Retry => retries += 1,
                }
                assert!(outcome.is_err(), "{} retries what went well", policy.name);
                assert!(retries <= RETRIES_MAX, "{} retries for ever", policy.name);
            }
        }
    }
}
