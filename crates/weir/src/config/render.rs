//! Diagnostics as text with the lines that they are about. The only file that knows the renderer.

use super::diagnostic::Diagnostic;
use super::redact;
use super::source::Source;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::fmt::Write as _;

/// Most diagnostics of one file that are shown in full; the rest are counted.
const MAX_SHOWN: usize = 50;

/// All diagnostics of a file, in the order of their places, and a line that counts them.
pub(crate) fn diagnostics(
    diagnostics: &[Diagnostic],
    source: Option<&Source>,
    color: bool,
) -> String {
    let mut diagnostics: Vec<&Diagnostic> = diagnostics.iter().collect();
    diagnostics.sort_by_key(|diagnostic| {
        diagnostic.at.as_ref().map_or(usize::MAX, |(span, _)| span.start)
    });
    let shown = source.map(|source| redact::cover(&source.text)).unwrap_or_default();
    let mut text = String::new();
    for diagnostic in diagnostics.iter().take(MAX_SHOWN) {
        text.push_str(&one(diagnostic, source, &shown, color));
        text.push_str("\n\n");
    }
    let warnings = diagnostics.iter().filter(|diagnostic| diagnostic.code.is_warning()).count();
    let errors = diagnostics.len() - warnings;
    let hidden = diagnostics.len().saturating_sub(MAX_SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "{hidden} more are not shown");
    }
    if let Some(source) = source {
        let name = source.path.display();
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        match (errors, warnings) {
            (0, 0) => {}
            (0, w) => {
                let _ = writeln!(text, "{w} warning{} in {name}", plural(w));
            }
            (e, 0) => {
                let _ = writeln!(text, "{e} error{} in {name}", plural(e));
            }
            (e, w) => {
                let (es, ws) = (plural(e), plural(w));
                let _ = writeln!(text, "{e} error{es} and {w} warning{ws} in {name}");
            }
        }
    }
    text
}

fn one(diagnostic: &Diagnostic, source: Option<&Source>, text: &str, color: bool) -> String {
    let level = if diagnostic.code.is_warning() { Level::WARNING } else { Level::ERROR };
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    if let (Some(source), Some((span, label))) = (source, &diagnostic.at) {
        let path = source.path.display().to_string();
        let within = |at: usize| {
            let mut at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let clamp = |span: &std::ops::Range<usize>| within(span.start)..within(span.end);
        let primary = AnnotationKind::Primary.span(clamp(span)).label(label.as_str());
        let mut snippet = Snippet::source(text).path(path).annotation(primary);
        if let Some((span, label)) = &diagnostic.see {
            let context = AnnotationKind::Context.span(clamp(span)).label(label.as_str());
            snippet = snippet.annotation(context);
        }
        group = group.element(snippet);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group])
}

/// A message that is not about a place in a file.
pub(crate) fn plain(message: &str, help: Option<&str>, color: bool) -> String {
    let group = Group::with_title(Level::ERROR.primary_title(message));
    let group = match help {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    };
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    format!("{}\n", renderer.render(&[group]))
}
