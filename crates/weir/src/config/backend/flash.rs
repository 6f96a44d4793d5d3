//! The keys of a flash device.

use super::or;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::tree::{Context, Table};
use crate::config::value::Value;
use weir_flow::clock::Duration;
use weir_model::ssd::Config;

/// Reads them; what is not there is as in `preset`.
pub(super) fn read(context: &mut Context, table: &Table<'_>, preset: Config) -> Option<Config> {
    let mut count = |key: &str, default: u32| {
        or(context, table, key, default.into()).and_then(|count| u32::try_from(count).ok())
    };
    let chips = count("chips", preset.chips);
    let pages = count("pages", preset.pages);
    let page = count("page", preset.page);
    let spare_permille = count("spare_permille", preset.spare_permille);
    let filled_permille = count("filled_permille", preset.filled_permille);
    let buffer = count("buffer", preset.buffer);
    let mut time = |key: &str, default: Duration| {
        or(context, table, key, default.as_nanos()).map(Duration::from_nanos)
    };
    let register = time("register", preset.register);
    let read = time("read", preset.read);
    let program = time("program", preset.program);
    let erase = time("erase", preset.erase);
    let command = time("command", preset.command);
    let pipelined = table.flag(context, "pipelined").map(|pipelined| pipelined.value);
    let pipelined = match pipelined {
        None if table.has("pipelined") => None,
        None => {
            table.note(context, "pipelined", Value::Flag(preset.pipelined), None);
            Some(preset.pipelined)
        }
        given => given,
    };
    let capacity = table.number(context, "capacity");
    if let (Some(capacity), Some(blocks)) =
        (table.value_span("capacity"), table.value_span("blocks"))
    {
        let message = "`capacity` and `blocks` both say how large the device is";
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at(capacity, "one")
            .see(Some(&blocks), "the other");
        context.report(diagnostic.help("remove one of them"));
        return None;
    }
    let blocks = match &capacity {
        Some(_) => Some(preset.blocks),
        None => or(context, table, "blocks", preset.blocks.into()).map(|blocks| blocks as u32),
    };
    if capacity.is_none() && table.has("capacity") {
        return None;
    }
    let config = Config {
        chips: chips?,
        blocks: blocks?,
        pages: pages?,
        page: page?,
        spare_permille: spare_permille?,
        filled_permille: filled_permille?,
        register: register?,
        read: read?,
        program: program?,
        erase: erase?,
        pipelined: pipelined?,
        buffer: buffer?,
        command: command?,
    };
    let config = match &capacity {
        Some(capacity) => config.with_capacity(capacity.value),
        None => config,
    };
    let Err((key, message)) = config.validate() else {
        return Some(config);
    };
    let key = if key == "blocks" && capacity.is_some() { "capacity" } else { key };
    let span = table.value_span(key).unwrap_or_else(|| table.span());
    let diagnostic =
        Diagnostic::new(Code::OutOfRange, format!("`{key}` of the device: it {message}"));
    let help = "give it more or fewer chips, blocks or pages, or another share of spare ones";
    context.report(diagnostic.at(span, "this device").help(help));
    None
}
