//! The built pages: their links, and the ids that links lead to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::check::links::resolve;

/// A page that a web server sends for paths that do not exist, with links from the top of the site.
const NOT_FOUND: &str = "404.html";

/// A built page.
#[derive(Debug, Default)]
pub(super) struct BuiltPage {
    ids: BTreeSet<String>,
    links: Vec<String>,
}

impl BuiltPage {
    fn parse(text: &str) -> BuiltPage {
        let mut page = BuiltPage::default();
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('<') {
            let (tag, after) = after.split_once('>').unwrap_or((after, ""));
            page.read_tag(tag);
            rest = after;
            if tag.starts_with("script") {
                rest = rest.split_once("</script").map_or("", |(_, after)| after);
            }
        }
        page
    }

    fn read_tag(&mut self, tag: &str) {
        self.ids.extend(attribute(tag, "id").map(str::to_owned));
        let links = ["href", "src"].map(|name| attribute(tag, name));
        let links = links.into_iter().flatten();
        self.links
            .extend(links.map(|link| link.replace("&amp;", "&")));
    }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = tag.split_once(&format!(" {name}=\""))?;
    value.split('"').next()
}

/// The pages of a built book by their paths.
pub(super) fn read(book: &Path) -> io::Result<BTreeMap<PathBuf, BuiltPage>> {
    let mut pages = BTreeMap::new();
    for file in super::files(book)? {
        let path = file.strip_prefix(book).unwrap_or(&file);
        let is_page = path
            .extension()
            .is_some_and(|extension| extension == "html");
        if is_page && path != Path::new(NOT_FOUND) {
            let page = BuiltPage::parse(&fs::read_to_string(&file)?);
            pages.insert(path.to_owned(), page);
        }
    }
    Ok(pages)
}

/// The links that lead to no file of the book, or to no id of its page.
pub(super) fn problems(
    pages: &BTreeMap<PathBuf, BuiltPage>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, page) in pages {
        for link in &page.links {
            if link.contains(':') {
                continue;
            }
            let (file, id) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or_default();
            let target = match file {
                "" => path.clone(),
                file => resolve(path, file),
            };
            let place = path.display();
            if !exists(&target) {
                problems.push(format!("{place}: there is no {link}"));
            } else if let Some(target) = pages.get(&target)
                && !id.is_empty()
                && !target.ids.contains(id)
            {
                problems.push(format!("{place}: {link} leads to no id of the page"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let other = "<h1 id=\"top\"><a class=\"header\" href=\"#top\">Top</a></h1>";
        let pages = BTreeMap::from([
            (PathBuf::from("a.html"), BuiltPage::parse(text)),
            (PathBuf::from("b/c.html"), BuiltPage::parse(other)),
        ]);
        problems(&pages, |path| pages.contains_key(path))
    }

    #[test]
    fn good_links_pass() {
        let text = "<a href=\"b/c.html#top\">c</a> <img src=\"data:image/png;x\"> &lt;a href=\"no.html\"&gt;\
            <a href=\"https://example.org/#x\"></a><script>'<a href=\"no.html\">'</script>";

        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_missing_file_or_id_is_found() {
        assert_eq!(
            found("<a href=\"no.html\">"),
            ["a.html: there is no no.html"]
        );
        assert_eq!(
            found("<a class=\"x\" href=\"b/c.html#no\">"),
            ["a.html: b/c.html#no leads to no id of the page"]
        );
        assert_eq!(
            found("<script src=\"no.js\"></script>"),
            ["a.html: there is no no.js"]
        );
    }
}
