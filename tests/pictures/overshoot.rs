//! Tokens that 500 streams charge under a budget, by how much each reserves: the table of
//! docs/guides/budgets-with-envoy.md.
//!
//! What it deliberately does not do: measure. `tests/envoy` runs the streams through real Envoy and
//! compares the table.

use std::fmt::Write as _;

/// Page and file of the picture.
pub(crate) const PAGE: &str = "docs/guides/budgets-with-envoy.md";
pub(crate) const FILE: &str = "overshoot.svg";

/// The budget, in tokens.
const BUDGET: u64 = 100_000;

/// Tokens a pixel.
const SCALE: u64 = 2_300;
const LEFT: u64 = 150;
const TOP: u64 = 92;
const ROW: u64 = 34;

const STYLE: &str = "<style>
text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.name { font-size: 18px; font-weight: 600 }
.quiet { fill: #59636e }
.end { text-anchor: end }
.page { fill: #ffffff; stroke: #d1d9e0 }
.within { fill: #0969da }
.over { fill: #bc4c00 }
.budget { stroke: #1f2328; stroke-dasharray: 4 3; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.within { fill: #4493f8 }
.over { fill: #f0883e }
.budget { stroke: #e6edf3 }
}
</style>
";

/// A row of the table.
struct Row {
    start: String,
    charged: u64,
    overshoot: u64,
}

fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, table) = page.split_once("| start | streams at once |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = |at: usize| cells[at].replace(',', "").parse().unwrap();
        Row {
            start: cells[0].to_owned(),
            charged: number(2),
            overshoot: number(3),
        }
    })
    .collect()
}

pub(crate) fn picture() -> String {
    let rows = rows();
    assert_eq!(rows.len(), 5, "{PAGE}: rows of the table");
    let bottom = TOP + ROW * rows.len() as u64;
    let (width, height) = (760, bottom + 40);
    let edge = LEFT + BUDGET / SCALE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">
<title>Tokens charged by 500 streams under a budget of 100,000</title>
<desc>With checks of 0 hits the streams charge nearly ten times the budget. The more each reserves, the less they exceed it.</desc>
{STYLE}<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>
<text class=\"name\" x=\"20\" y=\"34\">500 streams at once, a budget of 100,000 tokens</text>
<text class=\"quiet\" x=\"20\" y=\"56\">Tokens charged, by what a stream does at its start. Each costs from 1 to 4,000, unknown before.</text>
<text x=\"{edge}\" y=\"{}\" text-anchor=\"middle\">budget</text>
<path class=\"budget\" d=\"M{edge} {}V{bottom}\"/>
",
        width - 1,
        height - 1,
        TOP - 14,
        TOP - 8,
    );
    for (row, y) in rows
        .iter()
        .zip((TOP..).step_by(usize::try_from(ROW).unwrap()))
    {
        let within = (row.charged - row.overshoot) / SCALE;
        let over = row.overshoot / SCALE;
        let text = y + 17;
        let beyond = match over {
            0 => String::new(),
            _ => format!(
                "<rect class=\"over\" x=\"{}\" y=\"{y}\" width=\"{over}\" height=\"24\"/>\n",
                LEFT + within
            ),
        };
        let after = LEFT + within + over + 8;
        let _ = write!(
            svg,
            "<text class=\"end\" x=\"{}\" y=\"{text}\">{}</text>
<rect class=\"within\" x=\"{LEFT}\" y=\"{y}\" width=\"{within}\" height=\"24\"/>
{beyond}<text x=\"{after}\" y=\"{text}\">{}</text>
",
            LEFT - 10,
            row.start,
            words(row),
        );
    }
    let _ = write!(
        svg,
        "<text class=\"quiet\" x=\"20\" y=\"{}\">Real Envoy 1.40. A test runs the streams and compares the figures.</text>\n</svg>\n",
        bottom + 24,
    );
    svg
}

fn words(row: &Row) -> String {
    match (row.overshoot * 10).div_ceil(BUDGET) {
        0 => "within the budget".to_owned(),
        _ => format!(
            "{} % of the budget",
            (row.charged * 100 + BUDGET / 2) / BUDGET
        ),
    }
}
