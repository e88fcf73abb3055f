//! Reports as text: one column for each kind of request, or two runs side by side.

use std::fmt::Write as _;

use super::report::{Quantiles, Report, Section};

/// A report as a table with a column for each mix entry.
pub fn table(report: &Report) -> String {
    let mut text = format!("{} to {}, {:.1} s", report.load, report.target, report.elapsed_s);
    if report.interrupted {
        text.push_str(" (stopped before its end)");
    }
    text.push_str("\n\n");
    let several = report.entries.len() > 1;
    let mut sections: Vec<&Section> = report.entries.iter().collect();
    if several || sections.is_empty() {
        sections.push(&report.all);
    }
    let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
    let columns: Vec<_> = sections.iter().map(|section| rows(section, report)).collect();
    grid(&mut text, &names, &columns);
    text
}

/// Two reports side by side, one block for each mix entry that both have and one for all.
pub fn compare(left: &Report, right: &Report, labels: [&str; 2]) -> String {
    let mut text = String::new();
    let mut pairs: Vec<(&Section, &Section)> = left
        .entries
        .iter()
        .filter_map(|section| Some((section, right.entry(&section.name)?)))
        .collect();
    pairs.push((&left.all, &right.all));
    for (a, b) in pairs {
        let _ = writeln!(text, "{}", a.name);
        grid(&mut text, &labels, &[rows(a, left), rows(b, right)]);
        text.push('\n');
    }
    text
}

type Rows = Vec<(String, String)>;

/// Prints columns of rows; a row that a column lacks is a dash there.
fn grid(text: &mut String, names: &[&str], columns: &[Rows]) {
    let mut labels: Vec<&String> = Vec::new();
    for (label, _) in columns.iter().flatten() {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    // Reasons of refusals stay under their sum, whichever column brought them.
    labels.sort_by_key(|label| rank(label));
    let first = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let cell = |rows: &Rows, label: &String| {
        let found = rows.iter().find(|(name, _)| name == label);
        found.map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let widths: Vec<usize> = names
        .iter()
        .zip(columns)
        .map(|(name, rows)| {
            let widest = rows.iter().map(|(_, value)| value.chars().count()).max();
            widest.unwrap_or(0).max(name.chars().count())
        })
        .collect();
    let _ = write!(text, "  {:first$}", "");
    for (name, width) in names.iter().zip(&widths) {
        let _ = write!(text, "  {name:>width$}");
    }
    text.push('\n');
    for label in labels {
        let _ = write!(text, "  {label:first$}");
        for (rows, width) in columns.iter().zip(&widths) {
            let _ = write!(text, "  {:>width$}", cell(rows, label));
        }
        text.push('\n');
    }
}

/// Place of a row: those of the first list in its order, reasons behind their sum.
fn rank(label: &str) -> usize {
    let order =
        ["sent", "answered", "refused", "  refused: ", "failed", "  failed: ", "unfinished"];
    let at = |start: &&str| {
        if start.ends_with(' ') { label.starts_with(*start) } else { label == *start }
    };
    order.iter().position(at).unwrap_or(order.len())
}

fn rows(section: &Section, report: &Report) -> Rows {
    let mut rows = Rows::new();
    let mut row = |label: &str, value: String| rows.push((label.to_owned(), value));
    let share = |part: f64| format!("{:.1} %", part * 100.0);
    row("sent", section.sent.to_string());
    row("answered", section.ok.to_string());
    row("refused", section.refused_total().to_string());
    for (reason, count) in &section.refused {
        row(&format!("  refused: {reason}"), count.to_string());
    }
    row("failed", section.failed_total().to_string());
    for (what, count) in &section.failed {
        row(&format!("  failed: {what}"), count.to_string());
    }
    if section.unfinished > 0 {
        row("unfinished", section.unfinished.to_string());
    }
    row("sent per s", format!("{:.1}", section.sent_per_s));
    row("answered per s", format!("{:.1}", section.ok_per_s));
    let bound = format!("waited over {} ms", report.wait_over_ms);
    if section.wait_unknown < section.sent {
        row(&bound, share(section.waited_over_share));
    } else {
        row(&bound, "unknown".into());
    }
    if section.wait_unknown > 0 && section.wait_unknown < section.sent {
        row("wait unknown", section.wait_unknown.to_string());
    }
    row(&format!("answered within {} ms", report.objective_ms), share(section.good_share));
    row("goodput per s", format!("{:.1}", section.good_per_s));
    let mut times = |name: &str, all: &Quantiles| {
        if all.count > 0 {
            row(&format!("{name} p50 ms"), number(all.p50));
            row(&format!("{name} p90 ms"), number(all.p90));
            row(&format!("{name} p99 ms"), number(all.p99));
        }
    };
    times("wait", &section.wait);
    times("  gateway wait", &section.gateway_wait);
    times("  engine wait", &section.engine_wait);
    times("execution", &section.exec);
    times("first token", &section.first_token);
    times("total", &section.total);
    times("refused after", &section.refused_after);
    rows
}

/// Whole milliseconds where a fraction says nothing.
fn number(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(refused: &str) -> Report {
        let mut report = Report { wait_over_ms: 700.0, objective_ms: 400.0, ..Report::default() };
        let section = |name: &str| Section {
            name: name.into(),
            sent: 10,
            ok: 9,
            refused: [(refused.to_owned(), 1)].into(),
            ..Section::default()
        };
        report.entries = vec![section("short"), section("long")];
        report.all = section("all");
        report
    }

    #[test]
    fn a_comparison_has_both_columns_and_a_dash_where_one_lacks_a_row() {
        let text = compare(&report("queue_full"), &report("queue_timeout"), ["without", "with"]);
        let line = |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap();
        let cells =
            |start: &str| -> Vec<_> { line(start).split_whitespace().skip(2).collect::<Vec<_>>() };
        assert_eq!(cells("refused: queue_full"), ["1", "-"]);
        assert_eq!(cells("refused: queue_timeout"), ["-", "1"]);
        assert!(text.contains("without") && text.contains("waited over 700 ms"));
    }
}
