//! The documents of `docs`, which are part of the binary, as pages.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use pulldown_cmark::{Alignment, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, html};

use super::ui::{self, Page};
use crate::http::router::plain;

/// Embeds files of `docs`, in Markdown.
macro_rules! documents {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../docs/", $name)))),*]
    };
}

static DOCUMENTS: [(&str, &str); 22] = documents![
    "comparison.md",
    "configuration.md",
    "formats.md",
    "http-api.md",
    "install.md",
    "kubernetes.md",
    "limits.md",
    "mechanisms.md",
    "migrating.md",
    "operations.md",
    "page.md",
    "performance.md",
    "promql.md",
    "rules.md",
    "runbook.md",
    "scale-out.md",
    "scaling.md",
    "security.md",
    "sizing.md",
    "slatedb.md",
    "tenancy.md",
    "tools.md",
];

/// Starts of content that scrolls by itself.
const TABLE_START: &str =
    "<div class=\"scrolled\" role=\"group\" aria-label=\"Table\" tabindex=\"0\">";
const CODE_START: &str =
    "<pre class=\"yaml\" role=\"group\" aria-label=\"Code\" tabindex=\"0\"><code>";

/// The file whose last section lists the documents.
const README: &str = include_str!("../../../README.md");
const LIST: &str = "## Documentation\n";

/// Documents of this server, each of which becomes a page when it is first asked for.
#[derive(Clone)]
pub(crate) struct Documents {
    title: Arc<str>,
    list: Arc<OnceLock<Page>>,
    pages: Arc<[OnceLock<Page>; DOCUMENTS.len()]>,
}

impl Documents {
    /// Returns the documents, whose pages have the title of the server after their own.
    pub(crate) fn new(title: &str) -> Documents {
        Documents { title: title.into(), list: Arc::default(), pages: Arc::default() }
    }

    /// `/docs/`: the list of documents.
    pub(crate) fn list(&self, headers: &HeaderMap) -> Response {
        ui::send_page(self.list.get_or_init(|| self.page(&list_text())), headers)
    }

    /// `/docs/<name>`: a document.
    pub(crate) fn document(&self, name: &str, headers: &HeaderMap) -> Response {
        match DOCUMENTS.iter().position(|(known, _)| *known == name) {
            Some(at) => {
                let page = self.pages[at].get_or_init(|| self.page(DOCUMENTS[at].1));
                ui::send_page(page, headers)
            }
            None => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn page(&self, text: &str) -> Page {
        let heading = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        Page::framed(&format!("{heading} · {}", self.title), &html_of(text))
    }
}

/// Returns the list of documents, in Markdown.
fn list_text() -> String {
    let (_, section) = README.split_once(LIST).expect("the README lists the documents");
    let table = section.trim_start().split("\n\n").next().unwrap_or_default();
    format!("# Documentation\n\n{}\n", table.replace("](docs/", "]("))
}

/// Returns HTML of Markdown, in which HTML is text. Images are left out, and so are links to
/// examples and to files that are not served.
fn html_of(text: &str) -> String {
    let mut events = Vec::new();
    let mut is_in_image = false;
    let mut is_link_served = true;
    // Position of the heading that is open.
    let mut heading_at = 0;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Image { .. }) => is_in_image = true,
            Event::End(TagEnd::Image) => is_in_image = false,
            _ if is_in_image => {}
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::Start(Tag::Link { ref dest_url, link_type, .. }) => {
                is_link_served = link_type != LinkType::Autolink && is_served(dest_url);
                events.extend(is_link_served.then_some(event));
            }
            Event::End(TagEnd::Link) => events.extend(is_link_served.then_some(event)),
            Event::Start(Tag::Heading { .. }) => {
                heading_at = events.len();
                events.push(event);
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&events[heading_at..]);
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[heading_at] {
                    *id = Some(anchor);
                }
                events.push(event);
            }
            // Wide content scrolls by itself, also with the keyboard.
            Event::Start(Tag::Table(columns)) => {
                events.push(Event::Html(TABLE_START.into()));
                // Alignments would be inline styles, which the policy of the page forbids.
                events.push(Event::Start(Tag::Table(vec![Alignment::None; columns.len()])));
            }
            Event::End(TagEnd::Table) => {
                events.extend([event, Event::Html("</div>".into())]);
            }
            Event::Start(Tag::CodeBlock(_)) => {
                events.push(Event::Html(CODE_START.into()));
            }
            Event::End(TagEnd::CodeBlock) => events.push(Event::Html("</code></pre>\n".into())),
            event => events.push(event),
        }
    }
    let mut page = String::with_capacity(text.len() * 3 / 2);
    html::push_html(&mut page, events.into_iter());
    // Screen readers announce the head of a column, which must not be empty.
    page.replace("<thead><tr><th></th><th></th></tr></thead>", "").replace("<th></th>", "<td></td>")
}

/// Returns whether a link leads to a part of the page, a document or another site.
fn is_served(target: &str) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    file.is_empty() || file.contains("://") || DOCUMENTS.iter().any(|(name, _)| *name == file)
}

/// Returns the anchor of a heading, as repositories of Markdown name it.
fn anchor<'a>(heading: &[Event<'_>]) -> CowStr<'a> {
    let texts = heading.iter().filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(text.to_lowercase()),
        _ => None,
    });
    let text = texts.collect::<String>();
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.chars().filter(is_kept).collect::<String>().replace(' ', "-").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_served_and_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".md"))
            .collect();
        names.sort();
        assert_eq!(names, DOCUMENTS.map(|(name, _)| name));
        let list = html_of(&list_text());
        for name in names {
            assert!(list.contains(&format!("<a href=\"{name}\">")), "{name}: {list}");
        }
    }

    #[test]
    fn links_lead_to_anchors_of_documents() {
        let pages: Vec<_> = DOCUMENTS.iter().map(|(name, text)| (*name, html_of(text))).collect();
        for (page, html) in &pages {
            for target in html.split("<a href=\"").skip(1) {
                let target = target.split('"').next().unwrap();
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                if file.contains("://") || anchor.is_empty() {
                    continue;
                }
                let file = if file.is_empty() { page } else { file };
                let (_, text) = pages.iter().find(|(name, _)| *name == file).unwrap();
                assert!(text.contains(&format!(" id=\"{anchor}\"")), "{page}: {target}");
            }
        }
    }

    #[test]
    fn markdown_becomes_a_page() {
        let text = "# A `b` (c)\n\n![An image](query.png) [a](rules.md#x) [b](../LICENSE) <tag> \
                    <http://c>\n\n| h | |\n|---:|---|\n| `<i>` | |\n\n| | |\n|---|---|\n\n\
                    ```sh\na < b\n```\n";
        let row = "<tr><td><code>&lt;i&gt;</code></td><td></td></tr>";
        let expected = format!(
            "<h1 id=\"a-b-c\">A <code>b</code> (c)</h1>\n\
             <p> <a href=\"rules.md#x\">a</a> b &lt;tag&gt; http://c</p>\n\
             {TABLE_START}<table><thead><tr><th>h</th><td></td></tr></thead>\
             <tbody>\n{row}\n</tbody></table>\n</div>\
             {TABLE_START}<table><tbody>\n</tbody></table>\n</div>{CODE_START}a &lt; b\n</code></pre>\n"
        );
        assert_eq!(html_of(text), expected);
    }
}
