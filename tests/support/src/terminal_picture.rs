//! Pictures of terminals: lines of text as SVG, and the lines of such a picture.
//!
//! Why SVG: it stays sharp, a search finds its text, and a test can compare it with what a command
//! prints. Each line has a set width, so columns meet in any font.
//!
//! What it deliberately does not do: show colours of a terminal.

use std::fmt::Write as _;

/// Tenths of a pixel that a character is wide.
const CHARACTER: usize = 82;
/// Pixels between two lines.
const LINE: usize = 18;
/// Pixels around the text.
const MARGIN: usize = 16;
/// Pixels of the bar above the text.
const BAR: usize = 28;

const STYLE: &str = "<style>
text { font: 13.6px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #1f2328 }
.page { fill: #ffffff; stroke: #d1d9e0 }
.bar { fill: #f6f8fa; stroke: #d1d9e0 }
.command { font-weight: 600 }
.prompt { fill: #0969da }
.quiet { fill: #59636e; font-size: 12px }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117; stroke: #3d444d }
.bar { fill: #151b23; stroke: #3d444d }
.prompt { fill: #4493f8 }
.quiet { fill: #9198a1 }
}
</style>
";

/// Marks a line of a command that was typed.
pub const PROMPT: &str = "$ ";

/// A picture of these lines below a title. Lines that begin with `$ ` are commands.
pub fn draw(title: &str, lines: &[String]) -> String {
    let columns = lines.iter().map(|line| line.chars().count()).max();
    let columns = columns.unwrap_or(0).max(80);
    let width = (columns * CHARACTER).div_ceil(10) + 2 * MARGIN;
    let height = BAR + lines.len() * LINE + 2 * MARGIN;
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title description\">\n\
         <!-- made by `make pictures`, from the output of the commands -->\n\
         <title id=\"title\">{title}</title>\n\
         <desc id=\"description\">A terminal with the output of the commands of the page.</desc>\n{STYLE}\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <path class=\"bar\" d=\"M0.5 {BAR}v-21.5a6 6 0 0 1 6 -6h{}a6 6 0 0 1 6 6v21.5z\"/>\n\
         <text class=\"quiet\" x=\"{MARGIN}\" y=\"19\">{title}</text>\n",
        width - 1,
        height - 1,
        width - 13,
    );
    for (index, line) in lines.iter().enumerate() {
        let shown = line.trim_end();
        if shown.is_empty() {
            continue;
        }
        let indent = shown.chars().take_while(|c| *c == ' ').count();
        let text = shown.trim_start();
        let x = MARGIN * 10 + indent * CHARACTER;
        let wide = text.chars().count() * CHARACTER;
        let class = if shown.starts_with(PROMPT) {
            " class=\"command\""
        } else {
            ""
        };
        let y = BAR + MARGIN + index * LINE + 12;
        writeln!(
            svg,
            "<text{class} data-line=\"{index}\" x=\"{}.{}\" y=\"{y}\" textLength=\"{}.{}\" xml:space=\"preserve\">{}</text>",
            x / 10,
            x % 10,
            wide / 10,
            wide % 10,
            escaped(text)
        )
        .expect("a String takes everything");
    }
    svg + "</svg>\n"
}

/// The lines of a picture, without their indentation and without empty lines.
pub fn lines(svg: &str) -> Vec<String> {
    let texts = svg.lines().filter(|line| line.contains(" data-line="));
    texts
        .map(|line| {
            let (_, rest) = line.split_once('>').expect("a text");
            let (text, _) = rest.rsplit_once("</text>").expect("its end");
            text.replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&")
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_lines_that_it_was_drawn_from() {
        let drawn = ["$ a <b> & c", "", "   │ ▁▂▃ é"].map(str::to_owned);
        let svg = draw("A & B", &drawn);
        assert_eq!(lines(&svg), ["$ a <b> & c", "│ ▁▂▃ é"]);
        assert!(svg.contains("<title id=\"title\">A &amp; B</title>"));
    }
}
