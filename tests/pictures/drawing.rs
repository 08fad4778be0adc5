//! Draws simulations: a picture of each algorithm, and an overview of all.
//!
//! How: SVG written by hand. All lengths are integers, so a picture is the same on every machine.
//! Dots are zero-length strokes with round ends, which take few bytes. A picture has its own
//! background, light or dark by the reader's setting, so it can be shown anywhere. Filled and
//! hollow dots, not colours, distinguish admitted from refused requests.
//!
//! What it deliberately does not do: simulate (`scene`), run scripts, load fonts.

use std::fmt::Write as _;

use crate::pictures::scene::{
    BEGIN_S, Busiest, END_S, LOOKS_A_SECOND, PHASES, REQUESTS, Simulation, WINDOW_S,
};

/// Pixels.
const STEP_WIDTH: u64 = 2;
/// Distance of the dots in a stack.
const STACKED: u64 = 8;

/// Colours for both themes, the rest once.
const STYLE: &str = r"<style>
text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
.name { font-size: 20px; font-weight: 600 }
.large { font-size: 18px; font-weight: 600 }
.small { font-size: 11px }
.quiet { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.row { fill: #f6f8fa }
.edge { stroke: #afb8c1; stroke-dasharray: 2 3; fill: none }
.part { stroke: #d1d9e0; fill: none }
.line { stroke: #afb8c1; fill: none }
.full { stroke: #bc4c00; stroke-dasharray: 6 4; fill: none }
.used { fill: #0969da; fill-opacity: 0.13; stroke: none }
.level { stroke: #0969da; stroke-width: 1.5; fill: none }
.bracket { stroke: #1f2328; fill: none }
.dot { stroke-linecap: round; stroke-width: 7; fill: none }
.admitted { stroke: #0969da }
.refused { stroke: #818b98 }
.hollow { stroke: #ffffff; stroke-width: 4.6 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.row { fill: #151b23 }
.edge, .line { stroke: #656c76 }
.part { stroke: #3d444d }
.full { stroke: #f0883e }
.used { fill: #4493f8; fill-opacity: 0.22 }
.level, .admitted { stroke: #4493f8 }
.bracket { stroke: #e6edf3 }
.refused { stroke: #7d8590 }
.hollow { stroke: #0d1117 }
}
</style>
";

/// Adds one line.
macro_rules! draw {
    ($svg:expr, $($words:tt)*) => {
        writeln!($svg, $($words)*).expect("a String takes everything")
    };
}

/// Time axis of a picture.
struct Axis {
    left: u64,
}

// === impl Axis ===

impl Axis {
    fn x(&self, at_s: u64) -> u64 {
        self.x_of_look(at_s * LOOKS_A_SECOND)
    }

    fn x_of_look(&self, look: u64) -> u64 {
        self.left + (look - BEGIN_S * LOOKS_A_SECOND) * STEP_WIDTH
    }

    fn right(&self) -> u64 {
        self.x(END_S)
    }

    /// Starts of windows.
    fn edges() -> impl Iterator<Item = u64> {
        (BEGIN_S..=END_S).filter(|at_s| at_s.is_multiple_of(WINDOW_S))
    }

    /// Draws the lines of window starts, interrupted where text is, and their times.
    fn draw_edges(&self, svg: &mut String, pieces: &[(u64, u64)]) {
        let mut lines = String::new();
        for (at_s, (top, bottom)) in
            Self::edges().flat_map(|at_s| pieces.iter().map(move |piece| (at_s, piece)))
        {
            write!(lines, "M{} {top}V{bottom}", self.x(at_s)).expect("a String takes everything");
        }
        draw!(svg, r#"<path class="edge" d="{lines}"/>"#);
        let bottom = pieces.iter().map(|(_, bottom)| *bottom).max().unwrap_or(0);
        for at_s in Self::edges() {
            let (x, y) = (self.x(at_s), bottom + 14);
            let (minutes, seconds) = (at_s / 60, at_s % 60);
            draw!(
                svg,
                r#"<text class="small quiet middle" x="{x}" y="{y}">{minutes}:{seconds:02}</text>"#
            );
        }
    }

    /// Draws the phases of arrivals.
    fn draw_phases(&self, svg: &mut String, y: u64) {
        for phase in &PHASES {
            let (from, to) = (self.x(phase.from_s), self.x(phase.to_s()));
            let near = |edge: &u64| from.abs_diff(*edge).min(to.abs_diff(*edge)) <= 2 * STACKED;
            // Text next to a window start stays on its side.
            let (x, anchor) = match Self::edges().map(|at_s| self.x(at_s)).find(near) {
                Some(edge) if to < edge => (edge - 5, "end"),
                Some(edge) if from > edge => (edge + 5, "start"),
                _ => (u64::midpoint(from, to), "middle"),
            };
            let words = phase.words;
            draw!(
                svg,
                r#"<text class="small quiet" text-anchor="{anchor}" x="{x}" y="{y}">{words}</text>"#
            );
        }
    }

    /// Draws every arrival, stacked upwards from `y` when several arrive at once.
    fn draw_arrivals(&self, svg: &mut String, simulation: &Simulation, y: u64) {
        let (mut admitted, mut refused) = (String::new(), String::new());
        let mut before = None;
        let mut height = 0;
        for arrival in &simulation.arrivals {
            height = if before == Some(arrival.at_s) {
                height + STACKED
            } else {
                0
            };
            before = Some(arrival.at_s);
            let dots = if arrival.admitted {
                &mut admitted
            } else {
                &mut refused
            };
            write!(dots, "M{} {}h0", self.x(arrival.at_s), y - height)
                .expect("a String takes everything");
        }
        draw!(svg, r#"<path class="dot admitted" d="{admitted}"/>"#);
        draw!(svg, r#"<path class="dot refused" d="{refused}"/>"#);
        draw!(svg, r#"<path class="dot hollow" d="{refused}"/>"#);
    }

    /// Draws a bracket below the window length in which most were admitted.
    fn draw_busiest(&self, svg: &mut String, simulation: &Simulation, y: u64) {
        let Busiest { from_s, admitted } = simulation.busiest();
        // Extends to both sides by the radius of a dot.
        let from = self.x(from_s) - 3;
        let to = self.x((from_s + WINDOW_S).min(END_S)) - 3;
        let (middle, below) = (u64::midpoint(from, to), y + 20);
        draw!(svg, r#"<path class="bracket" d="M{from} {y}v6H{to}v-6"/>"#);
        draw!(
            svg,
            r#"<text class="small middle" x="{middle}" y="{below}">most in {WINDOW_S} s: {admitted}</text>"#
        );
    }

    /// Draws the starts of segments, if there are any.
    fn draw_segments(&self, svg: &mut String, simulation: &Simulation, top: u64, bottom: u64) {
        let Some(segments) = simulation.limit.segments() else {
            return;
        };
        let long_s = WINDOW_S / u64::from(segments.get());
        let begin = (BEGIN_S..=END_S).filter(|at_s| at_s.is_multiple_of(long_s));
        let lines = begin.map(|at_s| format!("M{} {top}V{bottom}", self.x(at_s)));
        draw!(
            svg,
            r#"<path class="part" d="{}"/>"#,
            lines.collect::<String>()
        );
    }

    /// Draws a row of the overview: name, arrivals, number admitted, and most within one window
    /// length.
    fn draw_row(&self, svg: &mut String, simulation: &Simulation, top: u64, columns: [u64; 2]) {
        let name = simulation.algorithm.name();
        let differs = simulation.differs();
        let y = top + if differs.is_some() { 21 } else { 28 };
        draw!(svg, r#"<text class="code" x="24" y="{y}">{name}</text>"#);
        if let Some(words) = differs {
            let y = y + 16;
            draw!(
                svg,
                r#"<text class="code small quiet" x="24" y="{y}">{words}</text>"#
            );
        }
        self.draw_arrivals(svg, simulation, top + 31);
        let numbers = [simulation.admitted(), simulation.busiest().admitted];
        for (x, number) in columns.iter().zip(numbers) {
            let y = top + 29;
            draw!(
                svg,
                r#"<text class="large end" x="{x}" y="{y}">{number}</text>"#
            );
        }
    }

    /// Draws the used capacity, between `top` (all) and `bottom` (none).
    fn draw_level(&self, svg: &mut String, simulation: &Simulation, top: u64, bottom: u64) {
        let y = |used: u64| bottom - (bottom - top) * used / simulation.capacity;
        let mut line = String::new();
        for (look, used) in &simulation.levels {
            let (x, y) = (self.x_of_look(*look), y(*used));
            let step = if line.is_empty() {
                format!("M{x} {y}")
            } else {
                format!("H{x}V{y}")
            };
            line += &step;
        }
        write!(line, "H{}", self.right()).expect("a String takes everything");
        let (left, right) = (self.left, self.right());
        draw!(svg, r#"<path class="used" d="{line}V{bottom}H{left}Z"/>"#);
        draw!(svg, r#"<path class="full" d="M{left} {top}H{right}"/>"#);
        draw!(svg, r#"<path class="level" d="{line}"/>"#);
        draw!(svg, r#"<path class="line" d="M{left} {bottom}H{right}"/>"#);
        let beside = left - 6;
        for (y, number) in [(top, simulation.capacity), (bottom, 0)] {
            let y = y + 4;
            draw!(
                svg,
                r#"<text class="small quiet end" x="{beside}" y="{y}">{number}</text>"#
            );
        }
        let above = top - 6;
        draw!(
            svg,
            r#"<text class="small quiet" x="{left}" y="{above}">used</text>"#
        );
    }
}

/// Picture of one algorithm: arrivals above, level of the bucket below.
pub(crate) fn picture(simulation: &Simulation) -> String {
    let axis = Axis { left: 40 };
    let (left, right) = (axis.left, axis.right());
    let promise = simulation.algorithm.facts().promise;
    let mut svg = begin(
        (right + 40, 306),
        simulation.algorithm.name(),
        &format!(
            "{}. Of {} requests {} are admitted, at most {} of them in {WINDOW_S} s.",
            escaped(&promise.replace('`', "")),
            simulation.arrivals.len(),
            simulation.admitted(),
            simulation.busiest().admitted
        ),
    );
    for (x, y, class, words) in [
        (
            left,
            38,
            "code name",
            simulation.algorithm.name().to_owned(),
        ),
        (left, 60, "promise", marked_up(promise)),
        (left, 80, "code small quiet", simulation.settings()),
        (right, 80, "small quiet end", simulation.note()),
    ] {
        draw!(
            svg,
            r#"<text class="{class}" x="{x}" y="{y}">{words}</text>"#
        );
    }
    draw_legend(&mut svg, (right, 38), simulation);

    let (top, bottom) = (206, 272);
    axis.draw_edges(&mut svg, &[(118, 157), (186, bottom)]);
    axis.draw_phases(&mut svg, 110);
    draw!(svg, r#"<path class="line" d="M{left} 152H{right}"/>"#);
    axis.draw_arrivals(&mut svg, simulation, 146);
    axis.draw_busiest(&mut svg, simulation, 158);
    axis.draw_segments(&mut svg, simulation, top, bottom);
    axis.draw_level(&mut svg, simulation, top, bottom);
    svg + "</svg>\n"
}

/// Overview of all algorithms on one axis.
pub(crate) fn overview(simulations: &[Simulation]) -> String {
    let axis = Axis { left: 204 };
    let columns = [axis.right() + 54, axis.right() + 136];
    let width = columns[1] + 24;
    let (first, row) = (106, 46);
    let tops: Vec<u64> = (0..)
        .zip(simulations)
        .map(|(at, _)| first + at * row)
        .collect();
    let bottom = tops.last().unwrap() + row;

    let title = format!(
        "The same {} requests, limited by each algorithm",
        simulations[0].arrivals.len()
    );
    let said = simulations.iter().map(|simulation| {
        let (name, admitted) = (simulation.algorithm.name(), simulation.admitted());
        let most = simulation.busiest().admitted;
        format!("{name} admits {admitted}, at most {most} in {WINDOW_S} s")
    });
    let said = said.collect::<Vec<_>>().join("; ");
    let mut svg = begin((width, bottom + 32), &title, &format!("{said}."));
    draw!(svg, r#"<text class="large" x="24" y="38">{title}</text>"#);
    draw!(
        svg,
        r#"<text class="quiet" x="24" y="60">{REQUESTS} a minute by default. A filled dot passed, a hollow one was refused. At a dotted line a new minute begins.</text>"#
    );
    for y in tops.iter().step_by(2) {
        let width = width - 24;
        draw!(
            svg,
            r#"<rect class="row" x="12" y="{y}" width="{width}" height="{row}" rx="6"/>"#
        );
    }
    axis.draw_edges(&mut svg, &[(102, bottom + 4)]);
    axis.draw_phases(&mut svg, 96);
    let heads = ["passed".to_owned(), format!("most in {WINDOW_S} s")];
    for (x, words) in columns.iter().zip(heads) {
        draw!(
            svg,
            r#"<text class="small quiet end" x="{x}" y="96">{words}</text>"#
        );
    }
    for (simulation, top) in simulations.iter().zip(tops) {
        axis.draw_row(&mut svg, simulation, top, columns);
    }
    svg + "</svg>\n"
}

/// Begins an SVG with title and description for screen readers.
fn begin((width, height): (u64, u64), title: &str, description: &str) -> String {
    let mut svg = String::new();
    draw!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title description">"#
    );
    draw!(svg, "<!-- made by `make pictures` -->");
    draw!(svg, r#"<title id="title">{title}</title>"#);
    draw!(svg, r#"<desc id="description">{description}</desc>"#);
    svg += STYLE;
    let (inner_width, inner_height) = (width - 1, height - 1);
    draw!(
        svg,
        r#"<rect class="page" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="10"/>"#
    );
    svg
}

/// Draws the legend of filled and hollow dots with their numbers, right-aligned at `right`.
fn draw_legend(svg: &mut String, (right, y): (u64, u64), simulation: &Simulation) {
    let admitted = simulation.admitted();
    let refused = simulation.arrivals.len() - admitted;
    let dot_y = y - 4;
    for (x, classes, words) in [
        (
            right - 190,
            &["admitted"][..],
            format!("{admitted} admitted"),
        ),
        (
            right - 82,
            &["refused", "hollow"],
            format!("{refused} refused"),
        ),
    ] {
        for class in classes {
            draw!(svg, r#"<path class="dot {class}" d="M{x} {dot_y}h0"/>"#);
        }
        let x = x + 9;
        draw!(svg, r#"<text x="{x}" y="{y}">{words}</text>"#);
    }
}

/// Converts backticks of a sentence to markup.
fn marked_up(sentence: &str) -> String {
    let parts = sentence.split('`').map(escaped).enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => part,
        _ => format!(r#"<tspan class="code">{part}</tspan>"#),
    });
    parts.collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
