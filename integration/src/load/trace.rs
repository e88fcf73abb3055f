//! Reads arrival traces: when requests came, and how long prompt and answer were.
//!
//! Two public formats: CSV with `TIMESTAMP,ContextTokens,GeneratedTokens` (the Azure LLM inference
//! traces) and JSON lines with `timestamp` in milliseconds, `input_length`, `output_length` (the
//! Mooncake traces). The format is told by the first line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePoint {
    /// After the first request.
    pub at: Duration,
    /// Prompt tokens.
    pub prompt: usize,
    /// Output tokens.
    pub output: usize,
}

/// How a trace is fitted to the system under load.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Arrivals come this many times as fast; above 0.
    pub speed: f64,
    /// Only the first requests; `None` is all.
    pub limit: Option<usize>,
    /// Only requests that come within this time, after the speed-up; `None` is all.
    pub duration: Option<Duration>,
    /// Longer prompts are cut to this.
    pub max_prompt: usize,
    /// Longer answers are cut to this.
    pub max_output: usize,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            speed: 1.0,
            limit: None,
            duration: None,
            max_prompt: usize::MAX,
            max_output: usize::MAX,
        }
    }
}

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: usize,
    output_length: usize,
}

/// Reads a trace file.
///
/// # Errors
/// The file cannot be read, is in neither format, or has no requests.
pub fn read_trace(path: &Path, options: &TraceOptions) -> anyhow::Result<Vec<TracePoint>> {
    let name = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
    parse(BufReader::new(file), options).with_context(|| format!("{name}"))
}

/// Reads a trace from its lines.
///
/// # Errors
/// As [`read_trace`].
pub fn parse(lines: impl BufRead, options: &TraceOptions) -> anyhow::Result<Vec<TracePoint>> {
    if !(options.speed.is_finite() && options.speed > 0.0) {
        bail!("the speed must be above 0");
    }
    let mut rows: Vec<(f64, usize, usize)> = Vec::new();
    let limit = options.limit.unwrap_or(usize::MAX);
    for (number, line) in lines.lines().enumerate() {
        let line = line?;
        let line = line.trim();
        let is_title = number == 0 && line.to_ascii_uppercase().starts_with("TIMESTAMP");
        if line.is_empty() || is_title {
            continue;
        }
        if rows.len() == limit {
            break;
        }
        let row = if line.starts_with('{') { json_row(line) } else { csv_row(line) };
        rows.push(row.with_context(|| format!("line {}", number + 1))?);
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = rows.first().context("there are no requests")?.0;
    let point = |(at, prompt, output): (f64, usize, usize)| TracePoint {
        at: Duration::from_secs_f64((at - first).max(0.0) / options.speed),
        prompt: prompt.clamp(1, options.max_prompt.max(1)),
        output: output.clamp(1, options.max_output.max(1)),
    };
    let mut points: Vec<_> = rows.into_iter().map(point).collect();
    points.retain(|point| options.duration.is_none_or(|duration| point.at <= duration));
    Ok(points)
}

fn json_row(line: &str) -> anyhow::Result<(f64, usize, usize)> {
    let row: Line = serde_json::from_str(line)
        .context("not a request with timestamp, input_length and output_length")?;
    Ok((row.timestamp / 1e3, row.input_length, row.output_length))
}

fn csv_row(line: &str) -> anyhow::Result<(f64, usize, usize)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, prompt, output] = fields[..] else {
        bail!("not a request with TIMESTAMP,ContextTokens,GeneratedTokens");
    };
    let count = |text: &str| text.parse().with_context(|| format!("`{text}` is not a token count"));
    Ok((seconds(time)?, count(prompt)?, count(output)?))
}

/// Seconds since some day, of `2023-11-16 18:15:46.6805900` or of a plain number of seconds.
fn seconds(text: &str) -> anyhow::Result<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Ok(number);
    }
    let read = || -> Option<f64> {
        let (date, time) = text.split_once([' ', 'T'])?;
        let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        // An offset such as +00:00 is the same in every row.
        let time = time.trim_end_matches('Z').split('+').next()?;
        let mut time = time.split(':');
        let (hour, minute): (f64, f64) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
        let second: f64 = time.next()?.parse().ok()?;
        let days = days_since_1970(year, month, day) as f64;
        Some(days * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
    };
    read().with_context(|| format!("`{text}` is not a time"))
}

/// Days in the Gregorian calendar, counted in years that begin in March so that leap days end them.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read_and_sped_up() {
        let csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                   2023-11-30 23:59:59.5000000,374,44\n2023-12-01 00:00:01.5000000,396,109\n";
        let jsonl = "{\"timestamp\": 500, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [0]}\n\
                     {\"timestamp\": 2500, \"input_length\": 396, \"output_length\": 109}\n";
        let options = TraceOptions { speed: 4.0, max_output: 100, ..TraceOptions::default() };
        let wanted = [
            TracePoint { at: Duration::ZERO, prompt: 374, output: 44 },
            TracePoint { at: Duration::from_millis(500), prompt: 396, output: 100 },
        ];
        for text in [csv, jsonl] {
            assert_eq!(parse(text.as_bytes(), &options).unwrap(), wanted);
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2024, 2, 29), 19_782);
        assert_eq!(days_since_1970(2024, 3, 1), 19_783);
    }

    #[test]
    fn a_bad_line_is_named() {
        let err = parse("TIMESTAMP,a,b\n1,2\n".as_bytes(), &TraceOptions::default()).unwrap_err();
        assert!(format!("{err:#}").contains("line 2"), "{err:#}");
    }
}
