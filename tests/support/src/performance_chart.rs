//! Picture of the CPU figures: a dot for the median, a line from the lowest round to the highest.
//!
//! How: SVG written by hand from the lines of the table, so that picture and page agree
//! (`tests/pictures` draws it again from the page). It has its own background, light or dark by the
//! reader's setting.
//!
//! What it deliberately does not do: measure, run scripts, fetch fonts.

use std::fmt::Write as _;

pub const FILE: &str = "docs/pictures/performance.svg";

/// Pixels.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 780.0;
const WIDTH: u32 = 860;
const TOP: u32 = 96;
const A_ROW: u32 = 17;
const A_HEADING: u32 = 34;

const STYLE: &str = r"<style>
text { font: 12px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.large { font-size: 18px; font-weight: 600 }
.axis { font-weight: 600 }
.quiet { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; fill: none }
.floor { stroke: #818b98; fill: #818b98 }
.bare { stroke: #bc4c00; fill: #bc4c00 }
.tollgate { stroke: #0969da; fill: #0969da }
.peer { stroke: #8250df; fill: #8250df }
.spread { stroke-width: 3; stroke-opacity: 0.4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #3d444d }
.bare { stroke: #f0883e; fill: #f0883e }
.tollgate { stroke: #4493f8; fill: #4493f8 }
.peer { stroke: #a371f7; fill: #a371f7 }
}
</style>
";

/// The drawn part of a line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub axis: String,
    pub what: String,
    server: String,
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Bar {
    /// Parses a line of the table; none for any other line.
    pub fn read(line: &str) -> Option<Self> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [axis, what, server, cpu, _, _, _] = cells[..] else {
            return None;
        };
        // The latency table has as many columns; its second is a percentage.
        if what.ends_with('%') {
            return None;
        }
        let (median, rest) = cpu.split_once(" (")?;
        let (lowest, highest) = rest.strip_suffix(')')?.split_once(" to ")?;
        Some(Self {
            axis: axis.to_owned(),
            what: what.to_owned(),
            server: server.to_owned(),
            median: median.parse().ok()?,
            lowest: lowest.parse().ok()?,
            highest: highest.parse().ok()?,
        })
    }

    fn class(&self) -> &'static str {
        match self.server.as_str() {
            "nghttpd" => "floor",
            "bare tonic" => "bare",
            "tollgate" => "tollgate",
            _ => "peer",
        }
    }
}

/// Draws all bars, grouped by axis.
pub fn draw(bars: &[Bar]) -> String {
    let most = bars
        .iter()
        .map(|bar| bar.highest)
        .fold(1.0, f64::max)
        .ceil();
    let x = |us: f64| (LEFT + (RIGHT - LEFT) * us / most).round();
    let mut body = String::new();
    let mut y = TOP;
    let mut axis = "";
    let mut told = Vec::new();
    for bar in bars {
        if bar.axis != axis {
            axis = &bar.axis;
            y += A_HEADING;
            let _ = writeln!(
                body,
                r#"<text class="axis" x="24" y="{}">{axis}</text>"#,
                y - 18
            );
        }
        let (middle, class) = (y - 4, bar.class());
        let (from, at, to) = (x(bar.lowest), x(bar.median), x(bar.highest));
        let Bar {
            what,
            server,
            median,
            ..
        } = bar;
        let _ = write!(
            body,
            r#"<text x="40" y="{y}">{what}</text><text class="quiet end" x="{}" y="{y}">{server}</text>"#,
            LEFT - 14.0
        );
        let _ = write!(
            body,
            r#"<path class="{class} spread" d="M{from} {middle}H{to}"/><circle class="{class}" cx="{at}" cy="{middle}" r="3"/>"#
        );
        let _ = writeln!(
            body,
            r#"<text class="quiet end" x="{}" y="{y}">{median:.1}</text>"#,
            WIDTH - 24
        );
        told.push(format!("{axis} {what} {server} {median:.1}"));
        y += A_ROW;
    }
    let step = if most > 20.0 { 10.0 } else { 2.0 };
    let mut grid = String::new();
    let mut us = 0.0;
    while us <= most {
        let at = x(us);
        let _ = writeln!(
            grid,
            r#"<path class="grid" d="M{at} {TOP}V{y}"/><text class="quiet middle" x="{at}" y="{}">{us:.0}</text>"#,
            TOP - 8
        );
        us += step;
    }
    let height = y + 24;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title description">
<!-- made by `make bench`, see docs/performance.md -->
<title id="title">CPU time a check, in microseconds</title>
<desc id="description">{}.</desc>
{STYLE}<rect class="page" x="0.5" y="0.5" width="{}" height="{}" rx="10"/>
<text class="large" x="24" y="38">CPU time of the server a check, µs</text>
<text class="quiet" x="24" y="60">A dot is the median of the rounds, a line goes from the lowest to the highest.</text>
{grid}{body}</svg>
"#,
        told.join("; "),
        WIDTH - 1,
        height - 1
    )
}
