//! Web page: files of `src/ui`, which are part of the binary.
//!
//! They load no external resources, which the content security policy of the page enforces. All URLs
//! are relative, so that a proxy may add a prefix.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::router::plain;

/// Paths of the page, whose script selects the view. They are those of Prometheus, so that links work
/// here, too.
pub(crate) const PAGES: [&str; 15] = [
    "/",
    "/query",
    "/graph",
    "/explore",
    "/status",
    "/store",
    "/tsdb-status",
    "/top-queries",
    "/active-queries",
    "/flags",
    "/config",
    "/targets",
    "/service-discovery",
    "/rules",
    "/alerts",
];

/// Page, the elements of its title and of its main module, and the start and end of its content.
const PAGE: &str = include_str!("../../ui/index.html");
const TITLE: &str = "<title>Tessella</title>";
const MAIN_MODULE: &str = "<script src=\"ui/main.js\" type=\"module\"></script>";
const MAIN_START: &str = "<main id=\"main\">";
const MAIN_END: &str = "</main>";

/// Content security policy: files and API of this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'self'";

/// File with its content type.
struct File {
    name: &'static str,
    content: &'static [u8],
}

/// Embeds files of `src/ui`.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(File { name: $name, content: include_bytes!(concat!("../../ui/", $name)) }),*]
    };
}

static FILES: [File; FILE_COUNT] = files![
    "address.js",
    "api.js",
    "brackets.js",
    "buckets.js",
    "cardinality.js",
    "chart.js",
    "complete.js",
    "decimate.js",
    "dom.js",
    "editor.js",
    "explore.js",
    "export.js",
    "facts.js",
    "favicon.svg",
    "graph.js",
    "heatmap.js",
    "histogram.js",
    "index.html",
    "legend.js",
    "lexer.js",
    "links.js",
    "main.js",
    "matching.js",
    "matrix.js",
    "metrics.js",
    "numbers.js",
    "palette.js",
    "panel.js",
    "plan.js",
    "queries.js",
    "query.js",
    "range.js",
    "retention.js",
    "runtime.js",
    "scales.js",
    "self.js",
    "settings.js",
    "status.js",
    "store.js",
    "style.css",
    "syntax.js",
    "table.js",
    "theme.js",
    "timepicker.js",
    "times.js",
    "tree.js",
    "watched.js",
    "words.js",
];
const FILE_COUNT: usize = 48;

/// Entity tags of the files, in order.
static TAGS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| FILES.iter().map(|file| tag(file.content)).collect());

/// Page with the title of this server.
#[derive(Clone)]
pub(crate) struct Page {
    content: Bytes,
    tag: HeaderValue,
}

impl Page {
    /// Returns the page with a title, which is text, not HTML. It names all modules, so that the
    /// browser fetches them together.
    pub(crate) fn new(title: &str) -> Page {
        let modules = FILES.iter().filter(|file| file.name.ends_with(".js"));
        let links = modules
            .filter(|file| file.name != "theme.js")
            .map(|File { name, .. }| format!("<link rel=\"modulepreload\" href=\"ui/{name}\" />"));
        let links = links.collect::<Vec<_>>().join("\n    ");
        let page = titled(title);
        let content =
            Bytes::from(page.replace(MAIN_MODULE, &format!("{links}\n    {MAIN_MODULE}")));
        Page { tag: tag(&content), content }
    }

    /// Returns the page, one folder below, with content in place of its script.
    pub(super) fn framed(title: &str, content: &str) -> Page {
        let page = titled(title).replace(MAIN_MODULE, "");
        let (before, rest) = page.split_once(MAIN_START).expect("the page has a main element");
        let (_, after) = rest.split_once(MAIN_END).expect("the main element ends");
        let before = before
            .replace("href=\"", "href=\"../")
            .replace("src=\"", "src=\"../")
            .replace("\"../#", "\"#")
            .replace("\"../docs/\"", "\"./\" aria-current=\"page\"");
        let main = "<main id=\"main\" class=\"document\">";
        let content = Bytes::from(format!("{before}{main}{content}{MAIN_END}{after}"));
        Page { tag: tag(&content), content }
    }
}

/// Returns the page with a title, which is text.
fn titled(title: &str) -> String {
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    PAGE.replace(TITLE, &format!("<title>{escaped}</title>"))
}

/// Returns one of [`PAGES`], or a document, or 304 if the browser has it.
pub(crate) fn send_page(page: &Page, headers: &HeaderMap) -> Response {
    let mut response = send("index.html", page.content.clone(), page.tag.clone(), headers);
    let policy = HeaderValue::from_static(POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    let referrer = HeaderValue::from_static("no-referrer");
    response.headers_mut().insert(header::REFERRER_POLICY, referrer);
    response
}

/// `/ui/<name>`.
pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

/// `/favicon.svg` and `/favicon.ico`.
pub(crate) async fn icon(headers: HeaderMap) -> Response {
    serve("favicon.svg", &headers)
}

/// Returns a file, or 304 if the browser has it. Browsers ask each time, because other versions of
/// the server have the same names.
fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some(index) = FILES.iter().position(|file| file.name == name) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    send(name, Bytes::from_static(FILES[index].content), TAGS[index].clone(), headers)
}

fn send(name: &str, content: Bytes, tag: HeaderValue, headers: &HeaderMap) -> Response {
    let mut response = if has(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let kind = HeaderValue::from_static(content_type(name));
        ([(header::CONTENT_TYPE, kind)], content).into_response()
    };
    let kept = response.headers_mut();
    kept.insert(header::ETAG, tag);
    kept.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    kept.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns whether the browser has the file of a tag.
fn has(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let listed = headers.get_all(header::IF_NONE_MATCH);
    let mut known = listed.iter().filter_map(|list| list.to_str().ok()).flat_map(|l| l.split(','));
    known.any(|known| known.trim() == "*" || known.trim().as_bytes() == tag.as_bytes())
}

/// Returns a weak tag, which is the same for compressed content.
fn tag(content: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    let text = format!("W/\"{:016x}\"", hasher.finish());
    HeaderValue::from_str(&text).expect("hexadecimal digits may stand in a header")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use engine::catalog::{AGGREGATIONS, Function, KEYWORDS, Word};

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ui");

    #[test]
    fn every_file_of_the_folder_is_served() {
        let mut names: Vec<String> = std::fs::read_dir(FOLDER)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !matches!(name.as_str(), "README.md" | "package.json"))
            .collect();
        names.sort();
        let served: Vec<_> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(names, served);
    }

    #[test]
    fn the_page_names_all_modules() {
        let page = String::from_utf8(Page::new("<a>").content.to_vec()).unwrap();
        assert!(page.contains("<title>&lt;a&gt;</title>"), "{page}");
        for File { name, .. } in &FILES {
            let is_module = name.ends_with(".js") && *name != "theme.js";
            let link = format!("<link rel=\"modulepreload\" href=\"ui/{name}\" />");
            assert_eq!(page.contains(&link), is_module, "{name}");
        }
        assert!(page.contains(MAIN_MODULE), "{page}");
    }

    /// Returns the text of `words.js`: each word of the catalog with its description.
    fn words() -> String {
        use std::fmt::Write as _;

        let mut text = "\
// The words of PromQL: parameters and summary of each.
//
// Generated from engine/src/catalog: UPDATE_WORDS=1 cargo test --lib words_of_the_page

/** Aggregations: parameters and result. */
export const AGGREGATIONS = {\n"
            .to_owned();
        for Word { name, parameters, summary } in AGGREGATIONS {
            writeln!(text, "  {name}: [\"{parameters}\", \"{summary}\"],").unwrap();
        }
        text.push_str(
            "};\n\n/** Functions: parameters and result. */\nexport const FUNCTIONS = {\n",
        );
        for Function { name, parameters, summary, .. } in engine::catalog::all() {
            writeln!(text, "  {name}: [\"{parameters}\", \"{summary}\"],").unwrap();
        }
        text.push_str("};\n\n/** Keywords and modifiers: summary. */\nexport const KEYWORDS = {\n");
        for Word { name, summary, .. } in KEYWORDS {
            writeln!(text, "  {name}: \"{summary}\",").unwrap();
        }
        text + "};\n"
    }

    #[test]
    fn words_of_the_page_are_those_of_the_catalog() {
        let path = FilePath::new(FOLDER).join("words.js");
        if std::env::var_os("UPDATE_WORDS").is_some() {
            std::fs::write(&path, words()).unwrap();
        }
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text == words(), "run UPDATE_WORDS=1 cargo test --lib words_of_the_page");
    }

    #[test]
    fn files_name_no_other_server_and_no_root() {
        for file in &FILES {
            let text = std::str::from_utf8(file.content).unwrap();
            let text = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            for forbidden in ["://", "src=\"/", "href=\"/", "fetch(\"/", "from \"/", "url(/"] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.name);
            }
        }
    }

    #[test]
    fn the_title_is_text() {
        assert!(PAGE.contains(TITLE));
        let page = Page::new("R&D <b>");
        let text = std::str::from_utf8(&page.content).unwrap();
        assert!(text.contains("<title>R&amp;D &lt;b&gt;</title>"), "{text}");
        assert_ne!(page.tag, Page::new("Tessella").tag);
    }

    #[test]
    fn a_tag_that_is_known_saves_the_file() {
        let tag = TAGS[0].to_str().unwrap();
        let cases = [
            (tag.to_owned(), true),
            (format!("W/\"0\", {tag}"), true),
            ("*".to_owned(), true),
            ("W/\"0\"".to_owned(), false),
            (String::new(), false),
        ];
        for (known, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_str(&known).unwrap());
            assert_eq!(has(&headers, &TAGS[0]), expected, "{known}");
            let status = serve(FILES[0].name, &headers).status();
            assert_eq!(status == StatusCode::NOT_MODIFIED, expected, "{known}");
        }
    }
}
