//! Devices that a trace names: each name gets a number, in order of its first request by time.
//!
//! The order of time is the same in all formats, that of the lines is not.

use std::collections::BTreeMap;

/// Most devices of one trace that have names, and the bytes of a name.
const MOST: usize = 65_536;
const LONGEST: usize = 255;

/// The names of a trace's devices.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The line of `texts` of each name.
    numbers: BTreeMap<String, u32>,
    /// The names in order of the file, with their numbers once a request has left.
    texts: Vec<(String, Option<u32>)>,
    /// The lines of `texts` in order of their numbers.
    left: Vec<u32>,
    numbered: bool,
}

impl Names {
    /// The name of a device, where the file has one.
    pub(super) fn name(&self, device: u32) -> Option<&str> {
        let &line = self.left.get(device as usize)?;
        self.texts.get(line as usize).map(|(text, _)| text.as_str())
    }

    /// The number of a device, of which a request leaves in order of time. It was that of [`Self::number`], if
    /// the file has names.
    pub(super) fn leaves(&mut self, device: u32) -> u32 {
        let Some((_, number)) = self.texts.get_mut(device as usize) else { return device };
        *number.get_or_insert_with(|| {
            self.left.push(device);
            self.left.len() as u32 - 1
        })
    }

    /// A device was met that is a number in the file. `Err` with what was expected instead.
    pub(super) fn numbered(&mut self) -> Result<(), &'static str> {
        if !self.texts.is_empty() {
            return Err("a name, as above: a file has numbers or names");
        }
        self.numbered = true;
        Ok(())
    }

    /// The number of a name in order of the file. A file has names or numbers: a name's own number would mean another device.
    /// `Err` with what was expected instead.
    pub(super) fn number(&mut self, text: &str) -> Result<u32, &'static str> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        let odd = |c: char| c.is_control() || c == ',' || c == '"';
        let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '/' || c == '_');
        if !begins || text.contains(odd) || text.len() > LONGEST {
            return Err("a number, `major:minor`, or a name");
        }
        if self.numbered {
            return Err("a number, as above: a file has numbers or names");
        }
        if self.texts.len() >= MOST {
            return Err("one of the 65,536 names above: a trace has no more devices");
        }
        let number = self.texts.len() as u32;
        self.texts.push((text.to_owned(), None));
        self.numbers.insert(text.to_owned(), number);
        Ok(number)
    }
}
