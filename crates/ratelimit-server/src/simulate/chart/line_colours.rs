//! The colours of lines by their names.

use super::ChartRun;
use crate::svg::LINE_COLOURS;

/// The class of each line's colour. A name has the same colour in all panels, and in every chart unless another name of
/// the chart takes it first.
pub(super) struct LineColours<'a>(Vec<(&'a str, &'static str)>);

impl<'a> LineColours<'a> {
    pub(super) fn of_runs(runs: &'a [ChartRun<'_>]) -> LineColours<'a> {
        let budgets = runs.iter().flat_map(|run| &run.replay.budgets);
        LineColours::new(budgets.map(|budget| &*budget.name))
    }

    fn new(names: impl Iterator<Item = &'a str>) -> LineColours<'a> {
        let mut colours: Vec<(&str, &str)> = Vec::new();
        for name in names {
            if colours.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let is_free = |class: &str| colours.iter().all(|(_, taken)| *taken != class);
            let mut preferred = LINE_COLOURS
                .into_iter()
                .cycle()
                .skip(place(name))
                .take(LINE_COLOURS.len());
            let class = preferred.find(|class| is_free(class));
            colours.push((name, class.unwrap_or(LINE_COLOURS[place(name)])));
        }
        LineColours(colours)
    }

    pub(super) fn class(&self, name: &str) -> &'static str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or(LINE_COLOURS[0], |(_, class)| class)
    }
}

/// The preferred colour of a name. It is FNV-1a, which is the same on every machine, moved so that `default` is first.
fn place(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let place = ((hash >> 32) + 2) % LINE_COLOURS.len() as u64;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_colour_and_no_two_names_share_one() {
        let names = ["default", "a", "b", "c", "d", "e", "f", "g"];

        let colours = LineColours::new(names.into_iter().chain(["a"]));
        let alone = LineColours::new(["default"].into_iter());

        let mut classes = names.map(|name| colours.class(name));
        assert_eq!(classes[0], "a");
        assert_eq!(alone.class("default"), "a");
        classes.sort_unstable();
        assert_eq!(classes, LINE_COLOURS);
    }
}
