//! Devices that a trace names: each name gets a number, in order of appearance.

use std::collections::BTreeMap;

/// Most devices of one trace that have names, and the bytes of a name.
const MOST: usize = 65_536;
const LONGEST: usize = 255;

/// The names of a trace's devices.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: BTreeMap<String, u32>,
    texts: Vec<String>,
    numbered: bool,
}

impl Names {
    /// The name of a device, where the file has one.
    pub(super) fn name(&self, device: u32) -> Option<&str> {
        self.texts.get(device as usize).map(String::as_str)
    }

    /// A device was met that is a number in the file. `Err` with what was expected instead.
    pub(super) fn numbered(&mut self) -> Result<(), &'static str> {
        if !self.texts.is_empty() {
            return Err("a name, as above: a file has numbers or names");
        }
        self.numbered = true;
        Ok(())
    }

    /// The number of a name. A file has names or numbers: a name's own number would mean another device.
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
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Ok(number)
    }
}
