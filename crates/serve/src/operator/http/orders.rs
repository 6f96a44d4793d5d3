//! Orders over HTTP: their bodies, and what they are on the control socket.

use super::problem::Fault;
use crate::operator::protocol::Request;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The body of an order that has no fields.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NoFields {}

/// How a path is disabled.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Disable {
    /// Even if no other path to the backend can be used.
    force: bool,
}

/// How the configuration is read again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Reload {
    /// Check only whether it can be put into force.
    dry_run: bool,
    /// Take away volumes and exports even if hosts use them.
    force: bool,
}

/// An order to a volume.
fn to_volume(name: &str, body: &[u8], make: fn(String) -> Request) -> Result<Request, Fault> {
    let NoFields {} = read(body)?;
    Ok(make(name.to_owned()))
}

pub(super) fn drain([volume, _]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    to_volume(volume, body, |volume| Request::VolumeDrain { volume })
}

pub(super) fn resume([volume, _]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    to_volume(volume, body, |volume| Request::VolumeResume { volume })
}

pub(super) fn retry([volume, _]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    to_volume(volume, body, |volume| Request::VolumeRetry { volume })
}

pub(super) fn quarantine([volume, _]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    to_volume(volume, body, |volume| Request::VolumeQuarantine { volume })
}

pub(super) fn disable([backend, path]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    let Disable { force } = read(body)?;
    Ok(Request::PathDisable { backend: backend.to_owned(), path: number(path)?, force })
}

pub(super) fn enable([backend, path]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    let NoFields {} = read(body)?;
    Ok(Request::PathEnable { backend: backend.to_owned(), path: number(path)? })
}

pub(super) fn failback([backend, _]: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    let NoFields {} = read(body)?;
    Ok(Request::PathFailback { backend: backend.to_owned() })
}

pub(super) fn reload(_: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    let Reload { dry_run, force } = read(body)?;
    Ok(Request::Reload { dry_run, force })
}

pub(super) fn stop(_: [&str; 2], body: &[u8]) -> Result<Request, Fault> {
    let NoFields {} = read(body)?;
    Ok(Request::Stop {})
}

/// The number of a path.
fn number(text: &str) -> Result<u32, Fault> {
    text.parse().map_err(|_| Fault::Unknown { what: "path", name: text.to_owned() })
}

/// The fields of a body; nothing is an object without fields.
fn read<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Fault> {
    if body.is_empty() {
        return Ok(T::default());
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Fault::NotJson(error.to_string()))?;
    // Serde would take the fields of an array in their order.
    if !value.is_object() {
        return Err(Fault::NotARequest("it is no object".to_owned()));
    }
    serde_json::from_value(value).map_err(|error| Fault::NotARequest(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body has the fields of its order and no others, in an object; nothing is an object without fields.
    #[test]
    fn bodies_are_read() {
        let forced = |body: &[u8]| match disable(["a", "1"], body) {
            Ok(Request::PathDisable { backend, path: 1, force }) if backend == "a" => Ok(force),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err((fault.status(), fault)),
        };
        assert_eq!(forced(b""), Ok(false));
        assert_eq!(forced(b"{}"), Ok(false));
        assert_eq!(forced(b"{\"force\":true}"), Ok(true));
        for bad in ["{", "nul", "[true]", "true", "{\"force\":1}", "{\"forced\":true}"] {
            assert_eq!(forced(bad.as_bytes()).unwrap_err().0, 400, "{bad}");
        }
        for bad in ["-1", "x", "4294967296"] {
            assert_eq!(enable(["a", bad], b"").unwrap_err().status(), 404, "{bad}");
        }
        assert_eq!(stop(["", ""], b"{\"now\":true}").unwrap_err().status(), 400);
    }
}
