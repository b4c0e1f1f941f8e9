//! SVG in the style of all charts.
//!
//! - Colours follow the light or dark theme of the reader.
//! - A title and a description are read aloud in place of the drawing.
//! - No font, image or script is loaded.

use std::fmt::{self, Write as _};

/// The width of every chart.
pub(crate) const WIDTH: i64 = 760;

/// The class of each colour of lines. [`Svg`] defines one more, `soft`, and those of outcomes.
pub(crate) const LINE_COLOURS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const STYLE: &str = "\
:root{--bg:#fff;--ink:#14171c;--soft:#596273;--line:#e1e5ea;--edge:#858e9d;--allowed:#14784a;--delayed:#8a5200;--over:#0b6e80;\
--denied:#c02836;--a:#2556d8;--b:#7336cc;--c:#8a5200;--d:#a61e6b;--e:#56650a;--f:#475569;--g:#a8430f;--h:#0b6e80}
@media(prefers-color-scheme:dark){:root{--bg:#0e1116;--ink:#e9ecf1;--soft:#9aa4b4;--line:#272d37;--edge:#6b7586;--allowed:#4cc38a;\
--delayed:#f0b04a;--over:#5cc8d6;--denied:#ff7d86;--a:#86aaff;--b:#bb9aff;--c:#f0b04a;--d:#f48cc4;--e:#c3d24a;--f:#b4bfce;--g:#ff9a62;\
--h:#5cc8d6}}
text{font:12px system-ui,sans-serif;fill:var(--soft)}.t{font-weight:600;font-size:14px;fill:var(--ink)}.n{font-weight:600;fill:var(--k)}\
.grid{stroke:var(--line)}.axis{stroke:var(--edge)}.edge{stroke:var(--edge);stroke-dasharray:2 4}\
.ln{stroke:var(--k);stroke-width:2;stroke-linejoin:round;fill:none}.fill{fill:var(--k)}.band{fill:var(--k);opacity:.13}
.allowed{--k:var(--allowed)}.delayed{--k:var(--delayed)}.over{--k:var(--over)}.denied{--k:var(--denied)}\
.a{--k:var(--a)}.b{--k:var(--b)}.c{--k:var(--c)}.d{--k:var(--d)}.e{--k:var(--e)}.f{--k:var(--f)}.g{--k:var(--g)}.h{--k:var(--h)}
";

/// A length or position in tenths of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenths(pub(crate) i64);

impl Tenths {
    pub(crate) const fn px(pixels: i64) -> Tenths {
        Tenths(pixels * 10)
    }
}

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.abs() / 10, self.0.abs() % 10);
        match rest {
            0 => write!(f, "{sign}{whole}"),
            rest => write!(f, "{sign}{whole}.{rest}"),
        }
    }
}

/// Where a text stands beside its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
pub(crate) struct Svg(String);

impl Svg {
    pub(crate) fn new(height: i64, title: &str, desc: &str) -> Svg {
        let (title, desc) = (escaped(title), escaped(desc));
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">{title}</title>\n<desc id=\"d\">{desc}</desc>\n\
             <style>\n{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--bg)\"/>\n"
        ))
    }

    /// Adds a line of SVG.
    pub(crate) fn add(&mut self, element: fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }

    /// Adds a text with its classes.
    pub(crate) fn text(&mut self, at: (Tenths, Tenths), anchor: Anchor, class: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let (x, y) = at;
        let words = escaped(words);
        self.add(format_args!(
            "<text x=\"{x}\" y=\"{y}\"{anchor}{class}>{words}</text>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The width of a text of 12 px, or a little more.
pub(crate) fn text_width(words: &str) -> i64 {
    let width = |character: char| match character {
        'i' | 'l' | 'j' | '.' | ',' | ':' | ';' | '\'' | '|' => 4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 12,
        ' '..='~' => 8,
        _ => 13,
    };
    words.chars().map(width).sum()
}

/// Text as the content of an element or a quoted attribute. Characters that XML cannot contain are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The smallest step of 1, 2 or 5 times a power of ten of which at most `count` fit into `span`.
pub(crate) fn round_step(span: u64, count: u64) -> u64 {
    let powers = (0..19).map(|power| 10_u64.pow(power));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit)));
    steps.find(|step| span / step <= count).unwrap_or(u64::MAX)
}
