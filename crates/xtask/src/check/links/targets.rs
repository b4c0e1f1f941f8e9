//! The links of a page.

use super::anchors::lines_outside_fences;

/// The targets of `[text](target)`, `[name]: target`, `href="target"` and `src="target"`, outside code, with their lines.
pub(in crate::check) fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in lines_outside_fences(text) {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (at, _) in prose.match_indices("](") {
            let target = &prose[at + 2..];
            if let Some(end) = target.find([')', ' ']) {
                links.push((number, target[..end].to_owned()));
            }
        }
        for attribute in ["href=", "src=", "srcset="] {
            for (at, _) in prose.match_indices(attribute) {
                let value = &prose[at + attribute.len()..];
                let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
                let target = quote.and_then(|quote| value[1..].split(quote).next());
                links.extend(target.map(|target| (number, target.to_owned())));
            }
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
            && !target.contains(' ')
        {
            links.push((number, target.trim_matches(['<', '>', '`']).to_owned()));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_markdown_and_html_are_found() {
        let text = "[a](b.md) `[c](d.md)` ![e](f.svg \"title\")\n\
            <a href=\"g.md#h\"><img alt=\"x\" src='i.png'></a>\n```html\n<img src=\"no.png\">\n```\n[j]: k.md";

        let found: Vec<String> = links(text).into_iter().map(|(_, target)| target).collect();

        assert_eq!(found, ["b.md", "f.svg", "g.md#h", "i.png", "k.md"]);
    }
}
