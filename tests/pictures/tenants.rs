//! What three tenants of one plan get: the plan is raised, one has an override for two hours, one
//! is blocked. The requests are decided by the limiter.
//!
//! What it deliberately does not do: set overrides (`tests/service/admin/overrides.rs`).

use std::fmt::Write as _;
use std::num::NonZeroU32;

use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Hits, Limit, Operation, State, Timestamp, Unit};

/// File of the picture.
pub(crate) const FILE: &str = "tenants.svg";

const HOURS: u64 = 6;
/// Minutes between the requests of a tenant.
const EVERY: usize = 6;

/// Pixels.
const HOUR: u64 = 96;
const LEFT: u64 = 150;
const TOP: u64 = 84;
const ROW: u64 = 62;

/// From this minute on this limit applies; none is a block.
type Span = (u64, Option<u64>, &'static str);

const ROWS: [(&str, &[Span]); 3] = [
    (
        "acme",
        &[
            (0, Some(4), "free: 4 an hour"),
            (180, Some(6), "free is raised: 6 an hour"),
        ],
    ),
    (
        "globex",
        &[
            (0, Some(4), "free"),
            (60, Some(9), "override: 9 an hour"),
            (180, Some(6), "free"),
        ],
    ),
    (
        "initech",
        &[
            (0, Some(4), "free"),
            (90, None, "override: blocked"),
            (240, Some(6), "free"),
        ],
    ),
];

const STYLE: &str = "<style>
text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.name { font-size: 18px; font-weight: 600 }
.small { font-size: 11px }
.quiet { fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 }
.plan { fill: #f6f8fa; stroke: #d1d9e0 }
.override { fill: #0969da; fill-opacity: 0.13; stroke: #0969da }
.edge { stroke: #afb8c1; stroke-dasharray: 2 3; fill: none }
.dot { stroke-linecap: round; stroke-width: 7; fill: none }
.admitted { stroke: #0969da }
.refused { stroke: #818b98 }
.hollow { stroke: #ffffff; stroke-width: 4.6 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.plan { fill: #151b23; stroke: #3d444d }
.override { fill: #4493f8; fill-opacity: 0.22; stroke: #4493f8 }
.edge { stroke: #656c76 }
.admitted { stroke: #4493f8 }
.refused { stroke: #7d8590 }
.hollow { stroke: #0d1117 }
}
</style>
";

/// Whether each request of a tenant passes, by its minute.
fn decided(spans: &[Span]) -> impl Iterator<Item = (u64, bool)> {
    let mut state = State::default();
    (0..HOURS * 60).step_by(EVERY).map(move |minute| {
        let span = spans.iter().rev().find(|(from, ..)| *from <= minute);
        let Some(requests) = span.unwrap().1 else {
            return (minute, false);
        };
        let limit = Limit::per(requests, Unit::Hour, NonZeroU32::MIN);
        let operation = Operation {
            hits: Hits::Take(1),
            holder: None,
        };
        let at = Timestamp::from_seconds(1_800_000_000 + minute * 60);
        (
            minute,
            state.apply(&FixedWindow, &limit, operation, at).allowed,
        )
    })
}

fn x(minute: u64) -> u64 {
    LEFT + minute * HOUR / 60
}

pub(crate) fn picture() -> String {
    let bottom = TOP + ROW * ROWS.len() as u64;
    let (width, height) = (LEFT + HOURS * HOUR + 24, bottom + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">
<title>Requests of three tenants of one plan</title>
<desc>A change of the plan raises all of its tenants. An override raises or blocks one of them for a time.</desc>
{STYLE}<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>
<text class=\"name\" x=\"20\" y=\"34\">Three tenants of the plan free</text>
<text class=\"quiet\" x=\"20\" y=\"56\">A request every {EVERY} minutes: filled dots pass, hollow ones are refused.</text>
",
        width - 1,
        height - 1,
    );
    for hour in 0..=HOURS {
        let at = x(hour * 60);
        let _ = write!(
            svg,
            "<path class=\"edge\" d=\"M{at} {TOP}V{bottom}\"/>
<text class=\"small quiet\" text-anchor=\"middle\" x=\"{at}\" y=\"{}\">{hour}:00</text>\n",
            bottom + 16,
        );
    }
    for ((name, spans), top) in ROWS
        .iter()
        .zip((TOP..).step_by(usize::try_from(ROW).unwrap()))
    {
        let _ = writeln!(svg, "<text x=\"20\" y=\"{}\">{name}</text>", top + 19);
        let ends = spans.iter().skip(1).map(|(from, ..)| *from);
        for ((from, _, words), to) in spans.iter().zip(ends.chain([HOURS * 60])) {
            let kind = if words.starts_with("override") {
                "override"
            } else {
                "plan"
            };
            let (left, right) = (x(*from), x(to));
            let _ = write!(
                svg,
                "<rect class=\"{kind}\" x=\"{left}\" y=\"{}\" width=\"{}\" height=\"24\"/>
<text x=\"{}\" y=\"{}\">{words}</text>\n",
                top + 3,
                right - left,
                left + 8,
                top + 20,
            );
        }
        let (mut admitted, mut refused) = (String::new(), String::new());
        for (minute, passes) in decided(spans) {
            let dots = if passes { &mut admitted } else { &mut refused };
            // Between the starts of windows.
            let _ = write!(dots, "M{} {}h0", x(minute) + 5, top + 42);
        }
        for (class, dots) in [
            ("admitted", &admitted),
            ("refused", &refused),
            ("hollow", &refused),
        ] {
            let _ = writeln!(svg, "<path class=\"dot {class}\" d=\"{dots}\"/>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}
