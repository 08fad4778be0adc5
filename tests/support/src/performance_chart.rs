//! Charts of the CPU figures: one for each axis, and one that compares tollgate with its peers.
//!
//! How: SVG written by hand from the lines of the tables, so that chart and page agree
//! (`tests/pictures` draws them again from the pages). An axis has a dot for the median and a line
//! from the lowest round to the highest; peers have bars. Each chart has its own background, light
//! or dark by the reader's setting.
//!
//! What it deliberately does not do: measure, run scripts, fetch fonts.

use std::fmt::Write as _;

/// File of the chart of tollgate and its peers.
pub const PEERS_FILE: &str = "docs/pictures/peers.svg";

/// Markers around the figures of the README.
pub const PEERS_BEGIN: &str = "<!-- bench-peers -->\n";
pub const PEERS_END: &str = "<!-- /bench-peers -->\n";

/// Every axis with a chart, and what varies along it.
const AXES: [(&str, &str); 10] = [
    ("one-key", "one key, by connections × streams"),
    (
        "own-api",
        "the protocol of the clients beside Envoy's, by connections × streams",
    ),
    (
        "spread",
        "100,000 keys on two cores, by connections × streams",
    ),
    ("partitions", "100,000 keys on two cores, by partitions"),
    ("cores", "by cores"),
    ("rules", "by number of rules"),
    ("keys", "by number of keys"),
    ("descriptors", "by descriptors in a request"),
    ("verdict", "allowed or over limit"),
    ("algorithm", "by algorithm"),
];

/// Pixels.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 780.0;
const WIDTH: u32 = 860;
const TOP: u32 = 96;
const ROW_HEIGHT: u32 = 20;
const PEER_HEIGHT: u32 = 30;

const STYLE: &str = r"<style>
text { font: 12px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.large { font-size: 18px; font-weight: 600 }
.quiet { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; fill: none }
.nghttpd { stroke: #818b98; fill: #818b98 }
.bare { stroke: #bc4c00; fill: #bc4c00 }
.tollgate { stroke: #0969da; fill: #0969da }
.peer { stroke: #8250df; fill: #8250df }
.spread { stroke-width: 3; stroke-opacity: 0.4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #3d444d }
.nghttpd { stroke: #9198a1; fill: #9198a1 }
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
            "nghttpd" => "nghttpd",
            "bare tonic" => "bare",
            "tollgate" => "tollgate",
            _ => "peer",
        }
    }
}

/// One server of the README's comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    pub server: String,
    cpu_us: f64,
}

impl Peer {
    /// Parses a line of the README's table; none for any other line.
    pub fn read(line: &str) -> Option<Self> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [server, cpu, _] = cells[..] else {
            return None;
        };
        Some(Self {
            server: server.to_owned(),
            cpu_us: cpu.parse().ok()?,
        })
    }

    /// The servers in the marked part of a page.
    pub fn all(page: &str) -> Vec<Self> {
        let (_, rest) = page.split_once(PEERS_BEGIN).unwrap_or_default();
        let (block, _) = rest.split_once(PEERS_END).unwrap_or_default();
        block.lines().filter_map(Self::read).collect()
    }
}

/// File of the chart of an axis.
pub fn axis_file(axis: &str) -> String {
    format!("docs/pictures/performance-{axis}.svg")
}

/// What varies along an axis.
pub fn axis_subject(axis: &str) -> &str {
    let known = AXES.iter().find(|(name, _)| *name == axis);
    known.map_or(axis, |(_, subject)| subject)
}

/// The chart of each axis by its file.
pub fn axis_charts(bars: &[Bar]) -> Vec<(String, String)> {
    let each = bars.chunk_by(|one, next| one.axis == next.axis);
    let chart = |bars: &[Bar]| {
        let axis = &bars.first()?.axis;
        let title = format!("CPU µs a check: {}", axis_subject(axis));
        Some((axis_file(axis), draw(&title, bars)))
    };
    each.filter_map(chart).collect()
}

/// Draws the bars of one axis.
pub fn draw(title: &str, bars: &[Bar]) -> String {
    let highest = bars.iter().map(|bar| bar.highest).fold(1.0, f64::max);
    let scale = Scale::up_to(highest);
    let mut body = String::new();
    let mut y = TOP + ROW_HEIGHT;
    let mut described = Vec::new();
    let mut previous = None;
    for bar in bars {
        let (middle, class) = (y - 4, bar.class());
        let [from, at, to] = [bar.lowest, bar.median, bar.highest].map(|us| scale.x(us));
        let Bar {
            what,
            server,
            median,
            ..
        } = bar;
        if previous != Some(what) {
            let _ = write!(body, r#"<text x="24" y="{y}">{what}</text>"#);
        }
        previous = Some(what);
        let _ = write!(
            body,
            r#"<text class="quiet end" x="{}" y="{y}">{server}</text>"#,
            LEFT - 14.0
        );
        let _ = write!(
            body,
            r#"<path class="{class} spread" d="M{from} {middle}H{to}"/><circle class="{class}" cx="{at}" cy="{middle}" r="3"/>"#
        );
        let _ = writeln!(
            body,
            r#"<text class="end" x="{}" y="{y}">{median:.2}</text>"#,
            WIDTH - 24
        );
        described.push(format!("{what} {server} {median:.2}").trim().to_owned());
        y += ROW_HEIGHT;
    }
    let body = scale.grid(y - 8) + &body;
    let about = "A dot is the median of the rounds. A line spans the lowest and the highest.";
    framed(
        (title, about),
        "bench",
        &described.join("; "),
        (&body, y + 8),
    )
}

/// Draws the comparison with the peers.
pub fn draw_peers(peers: &[Peer]) -> String {
    let highest = peers.iter().map(|peer| peer.cpu_us).fold(1.0, f64::max);
    let scale = Scale::up_to(highest);
    let mut body = String::new();
    let mut y = TOP;
    let mut described = Vec::new();
    for Peer { server, cpu_us } in peers {
        let class = if server.starts_with("tollgate") {
            "tollgate"
        } else {
            "nghttpd"
        };
        let width = (scale.x(*cpu_us) - LEFT).max(1.0);
        let text = y + 14;
        let _ = writeln!(
            body,
            r#"<text class="end" x="{}" y="{text}">{server}</text><rect class="{class}" x="{LEFT}" y="{y}" width="{width}" height="20"/><text x="{}" y="{text}">{cpu_us:.2}</text>"#,
            LEFT - 14.0,
            LEFT + width + 8.0
        );
        described.push(format!("{server} {cpu_us:.2}"));
        y += PEER_HEIGHT;
    }
    framed(
        (
            "CPU time of the server for one check, µs",
            "Less is better. 200 requests in flight, one core for each server.",
        ),
        "bench-peers",
        &described.join("; "),
        (&body, y + 8),
    )
}

/// The horizontal axis, from zero.
struct Scale {
    most: f64,
    step: f64,
}

impl Scale {
    /// A scale that reaches this value, with at most eight steps.
    fn up_to(highest: f64) -> Self {
        let steps = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let step = steps.into_iter().find(|step| highest / step <= 8.0);
        let step = step.unwrap_or(1_000.0);
        Self {
            most: (highest / step).ceil() * step,
            step,
        }
    }

    fn x(&self, us: f64) -> f64 {
        (LEFT + (RIGHT - LEFT) * us / self.most).round()
    }

    /// Lines and numbers, from the top of the chart down to this height.
    fn grid(&self, bottom: u32) -> String {
        let mut grid = String::new();
        let mut us = 0.0;
        while us <= self.most {
            let at = self.x(us);
            let _ = writeln!(
                grid,
                r#"<path class="grid" d="M{at} {TOP}V{bottom}"/><text class="quiet middle" x="{at}" y="{}">{us}</text>"#,
                TOP - 8
            );
            us += self.step;
        }
        grid
    }
}

/// A whole picture: title, subtitle, maker, description, content and its height.
fn framed(
    (title, about): (&str, &str),
    maker: &str,
    description: &str,
    (body, height): (&str, u32),
) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title description">
<!-- made by `make {maker}`, see docs/performance.md -->
<title id="title">{title}</title>
<desc id="description">{description}.</desc>
{STYLE}<rect class="page" x="0.5" y="0.5" width="{}" height="{}" rx="10"/>
<text class="large" x="24" y="38">{title}</text>
<text class="quiet" x="24" y="60">{about}</text>
{body}</svg>
"#,
        WIDTH - 1,
        height - 1
    )
}
