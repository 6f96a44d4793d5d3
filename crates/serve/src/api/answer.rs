//! What each question is answered with.

use super::backends::Backends;
use super::protocol::{Answer, Request};
use super::{Question, status};
use crate::gateway::Gateway;
use crate::watch::Watch;
use weir_flow::pipeline::Pipeline;

/// Answers a question. An order is only handed over here; it is answered when it has been done.
pub(crate) fn answer(
    pipeline: &mut Pipeline<Watch>,
    gateway: &mut Gateway<'_>,
    backends: &Backends,
    question: Question,
) {
    let now = gateway.now();
    match question {
        Question::Keep => gateway.keep(&pipeline.legacy(now)),
        Question::Summary => status::log(&status::status(pipeline, gateway, backends, now)),
        Question::Asked(client, asked) => {
            let answer = match asked {
                Ok(Request::Status {}) => {
                    Answer::Status(Box::new(status::status(pipeline, gateway, backends, now)))
                }
                Err(refusal) => (&refusal).into(),
            };
            gateway.tell(client, answer);
        }
    }
}
