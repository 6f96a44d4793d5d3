//! Writes a trace in another format.

use super::define::{Loss, Writer};
use super::{Error, Format, Problem, Reader};
use std::fmt::Write as _;
use std::io::{self, Write as Sink};

/// What a conversion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Requests that were written.
    pub requests: u64,
    /// Requests whose response time has no column in the new format.
    pub responses_lost: u64,
    /// Requests whose time was rounded down to the new format's unit.
    pub times_rounded: u64,
    /// Requests without a response time because their completion was not waited for to the end.
    pub responses_missed: u64,
    /// Notices that were left out: the new format holds none, more than 1 MiB of them stood between two requests,
    /// or more than 64 MiB waited for their requests.
    pub notices_lost: u64,
}

impl Conversion {
    /// Whether the new trace has less than the old one.
    pub const fn loses(&self) -> bool {
        self.responses_lost > 0
            || self.times_rounded > 0
            || self.responses_missed > 0
            || self.notices_lost > 0
    }
}

/// Most bytes of notices before the header, which must be in the first 64 KiB to be found.
const BEFORE_HEADER: usize = 1 << 15;

/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 16;

/// Reads `reader` to its end and writes every request to `out` in the format `to`.
///
/// # Errors
///
/// Whatever is wrong with the trace; a format that is not written; a request that `to` cannot hold
/// (an offset that is no multiple of its unit, a device without a number), and, unless `lossy`, one that
/// it holds in part.
pub fn convert(
    mut reader: Reader,
    to: Format,
    lossy: bool,
    out: &mut dyn Sink,
    mut progress: impl FnMut(u64),
) -> Result<Conversion, Error> {
    let Some(writer) = to.definition().write else {
        return Err(reader.error(format!("traces are not written in the format {to}")));
    };
    let mut done = Conversion::default();
    let mut text = String::with_capacity(BUFFER + 256);
    let mut next = reader.read()?;
    done.notices_lost += notices(&mut reader, writer, &mut text);
    let ends = text.match_indices('\n').map(|(end, _)| end + 1);
    let before = ends.take_while(|&end| end <= BEFORE_HEADER).last().unwrap_or(0);
    text.insert_str(before, writer.header);
    while let Some(record) = next {
        let number = record.device.to_string();
        let name = reader.device_name(record.device).unwrap_or(&number);
        match (writer.line)(&record, name, &mut text) {
            Ok(()) => {}
            Err(Loss::Time) if lossy => {
                done.times_rounded += 1;
                done.responses_lost += u64::from(record.response.is_some());
            }
            Err(Loss::Response) if lossy => done.responses_lost += 1,
            Err(loss) => return Err(refusal(&reader, loss, to, name)),
        }
        text.push('\n');
        done.requests += 1;
        next = reader.read()?;
        done.notices_lost += notices(&mut reader, writer, &mut text);
        if text.len() >= BUFFER {
            flush(&mut text, out, &reader)?;
            progress(done.requests);
        }
    }
    flush(&mut text, out, &reader)?;
    done.notices_lost += reader.notices_dropped();
    done.responses_missed = reader.responses_missed();
    Ok(done)
}

/// Writes the notices that have come, and returns how many it leaves out.
fn notices(reader: &mut Reader, writer: Writer, text: &mut String) -> u64 {
    let notices = reader.take_notices();
    if !writer.notices {
        return notices.len() as u64;
    }
    for notice in notices {
        let _ = writeln!(text, "{notice}");
    }
    0
}

fn flush(text: &mut String, out: &mut dyn Sink, reader: &Reader) -> Result<(), Error> {
    let written = out.write_all(text.as_bytes());
    text.clear();
    written.map_err(|error: io::Error| {
        let problem = Problem::new(0, format!("the new trace cannot be written: {error}"));
        problem.remedy("write it where there is space").at(&reader.path, 0)
    })
}

fn refusal(reader: &Reader, loss: Loss, to: Format, device: &str) -> Error {
    let (message, remedy) = match loss {
        Loss::Time => {
            (format!("the time is finer than the unit of {to}"), "--lossy rounds it down")
        }
        Loss::Response => {
            (format!("the request has a response time and {to} has none"), "--lossy drops it")
        }
        Loss::Address => (
            format!("the offset or size is no multiple of 512 bytes, which {to} needs"),
            "--to weir can hold it",
        ),
        Loss::Device => (format!("{to} cannot hold the device `{device}`"), "--to weir can"),
    };
    reader.error(message).remedy(remedy)
}
