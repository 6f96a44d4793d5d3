//! `[[trace]]`: recorded requests, read from a file as the run needs them.

use super::{MAX_TIME, Parts, link_of, part_of};
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::Tenants;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};
use weir_flow::clock::Duration;
use weir_flow::request::{TenantId, VolumeId};
use weir_sim::plan::{MAX_PARTS, Trace, TraceDevice};
use weir_sim::trace::Format;

/// The table.
pub(super) static TRACE: Section = Section {
    name: "trace",
    many: Many::Times(0, MAX_PARTS),
    effect: "recorded requests",
    keys: &[
        Key {
            name: "file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Required,
            effect: "the trace, plain or compressed with zstd",
        },
        Key {
            name: "format",
            kind: Kind::Word(&Format::NAMES),
            default: Default::Else("found from the content"),
            effect: "its format",
        },
        Key {
            name: "volume",
            kind: Kind::Text("a volume's name"),
            default: Default::Else("the only volume, if there are no `devices`"),
            effect: "what devices address that are not in `devices`",
        },
        Key {
            name: "tenant",
            kind: Kind::Text("a name"),
            default: Default::Else("the volume's name"),
            effect: "who asks, for devices that are not in `devices`",
        },
        Key {
            name: "devices",
            kind: Kind::Other("`{ 0 = { volume = \"…\", tenant = \"…\" }, … }`"),
            default: Default::Else("none"),
            effect: "what each device number of the file stands for",
        },
        Key {
            name: "link",
            kind: Kind::Text("a link's name"),
            default: Default::Else("the only link"),
            effect: "where replies go",
        },
        Key {
            name: "speed",
            kind: Kind::Real(0.001, 1e9),
            default: Default::Is("1.0"),
            effect: "1 as recorded, 2 twice as fast",
        },
        Key {
            name: "start",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Is("0s"),
            effect: "when the trace's time zero is",
        },
    ],
    settings: &[],
};

/// What one device looks like.
const FORM: &str = "write `0 = { volume = \"…\" }`";

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    parts: &Parts,
    tenants: &mut Tenants,
) -> Option<Vec<Trace>> {
    let tables = document.many(context, "trace");
    let traces: Vec<_> =
        tables.iter().map(|table| one(context, table, source, parts, tenants)).collect();
    traces.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    parts: &Parts,
    tenants: &mut Tenants,
) -> Option<Trace> {
    let file = table.text(context, "file");
    let format = table.text(context, "format");
    let format = table.optional("format", format).ok();
    let others = others(context, table, parts, tenants);
    let devices = devices(context, table, parts, tenants);
    let link = link_of(context, table, parts);
    let speed = table.permille(context, "speed");
    let start = table.number(context, "start");
    Some(Trace {
        path: source.resolve(&file?.value),
        format: format?.and_then(|format| Format::named(&format)),
        link: link?,
        devices: devices?,
        others: others.ok()?,
        speed_permille: speed?,
        start: Duration::from_nanos(start?.value),
    })
}

/// What devices stand for that are not named; `None` for the wish that they be errors.
fn others(
    context: &mut Context,
    table: &Table<'_>,
    parts: &Parts,
    tenants: &mut Tenants,
) -> Result<Option<(TenantId, VolumeId)>, Noted> {
    let tenant = table.text(context, "tenant");
    if table.has("devices") && !table.has("volume") {
        if let Some(tenant) = &tenant {
            let diagnostic =
                Diagnostic::new(Code::Conflict, "a `tenant` without a `volume` has no requests");
            let diagnostic = diagnostic.at_some(tenant.span.as_ref(), "this tenant");
            context.report(diagnostic.help("add `volume`, or move the tenant into `devices`"));
            return Err(Noted);
        }
        return Ok(None);
    }
    let volume = part_of(context, table, "volume", &parts.volumes).ok_or(Noted)?;
    let tenant = match tenant {
        Some(tenant) => tenant,
        None if table.has("tenant") => return Err(Noted),
        None => {
            let value = parts.volumes.name(volume).ok_or(Noted)?.to_owned();
            table.note(context, "tenant", Value::Text(value.clone()), None);
            Read { value, span: None }
        }
    };
    let tenant = tenants.index(context, &tenant);
    Ok(Some((TenantId::new(tenant as u32), VolumeId::new(volume as u32))))
}

fn devices(
    context: &mut Context,
    table: &Table<'_>,
    parts: &Parts,
    tenants: &mut Tenants,
) -> Option<Vec<TraceDevice>> {
    let Some(raw) = table.raw(context, "devices") else { return Some(Vec::new()) };
    let wrong = |context: &mut Context, span, found: &DeValue<'_>| {
        let message = format!("{} where a table belongs", type_name(found));
        let diagnostic = Diagnostic::new(Code::WrongType, message).at(span, "in `devices`");
        context.report(diagnostic.help(FORM));
    };
    let DeValue::Table(entries) = raw.get_ref() else {
        wrong(context, raw.span(), raw.get_ref());
        return None;
    };
    let diagnostics = context.diagnostics.len();
    let mut devices: Vec<TraceDevice> = Vec::new();
    let (mut noted, mut numbers) = (Vec::new(), BTreeSet::new());
    for (key, value) in entries {
        let Ok(number) = key.get_ref().parse::<u32>() else {
            let message = format!("`{}` is not a device number", shorten(key.get_ref()));
            let diagnostic =
                Diagnostic::new(Code::BadValue, message).at(key.span(), "in `devices`");
            context.report(diagnostic.help(FORM));
            continue;
        };
        if !numbers.insert(number) {
            let diagnostic =
                Diagnostic::new(Code::Duplicate, format!("device {number} is there twice"));
            context.report(diagnostic.at(key.span(), "the second").help("remove one of them"));
            continue;
        }
        let DeValue::Table(entries) = value.get_ref() else {
            wrong(context, value.span(), value.get_ref());
            continue;
        };
        let Some((volume, tenant)) = device(context, entries, value.span()) else { continue };
        let Some(volume_index) = parts.volumes.find(context, &volume) else { continue };
        let tenant = tenant.unwrap_or_else(|| Read { value: volume.value.clone(), span: None });
        let tenant_index = tenants.index(context, &tenant);
        noted.push((
            key.get_ref().to_string(),
            Value::Pairs(vec![
                ("volume".to_owned(), Value::Text(volume.value)),
                ("tenant".to_owned(), Value::Text(tenant.value)),
            ]),
        ));
        devices.push(TraceDevice {
            device: number,
            tenant: TenantId::new(tenant_index as u32),
            volume: VolumeId::new(volume_index as u32),
        });
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    table.note(context, "devices", Value::Pairs(noted), Some(raw.span()));
    Some(devices)
}

/// The volume and the tenant of one device.
fn device(
    context: &mut Context,
    entries: &DeTable<'_>,
    span: Span,
) -> Option<(Read<String>, Option<Read<String>>)> {
    let diagnostics = context.diagnostics.len();
    let (mut volume, mut tenant) = (None, None);
    for (key, value) in entries {
        let place = match key.get_ref().as_ref() {
            "volume" => &mut volume,
            "tenant" => &mut tenant,
            other => {
                let message = format!("a device has no key `{}`", shorten(other));
                let diagnostic = Diagnostic::new(Code::UnknownKey, message);
                context.report(diagnostic.at(key.span(), "not known here").help(FORM));
                continue;
            }
        };
        if let Some(text) = value.get_ref().as_str() {
            *place = Some(Read { value: text.to_owned(), span: Some(value.span()) });
        } else {
            let message = format!("{} where a name belongs", type_name(value.get_ref()));
            let diagnostic = Diagnostic::new(Code::WrongType, message).at(value.span(), "this");
            context.report(diagnostic.help(FORM));
        }
    }
    if volume.is_none() && context.diagnostics.len() == diagnostics {
        let diagnostic = Diagnostic::new(Code::MissingKey, "a device needs a `volume`");
        context.report(diagnostic.at(span, "this device").help(FORM));
    }
    (context.diagnostics.len() == diagnostics).then_some(())?;
    Some((volume?, tenant))
}
