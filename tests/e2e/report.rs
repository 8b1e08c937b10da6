//! `report.html`: whatever stands in a row is text, sensitive text stands nowhere, nothing is fetched.

use std::collections::BTreeSet;

use serde_json::json;

use super::harness::{Case, chat, chats, lines};

const HOSTILE: &str = "</blockquote></main><script>alert('owned')</script><img src=x onerror=alert(1)> \
    \"quoted\" & 'single' \u{202e}turned\u{0} one two three four five six seven eight nine ten eleven twelve";
const SECRET: &str = "zebra quartz nectar ivory saffron tundra walnut pepper lagoon cobalt juniper meteor \
    fjord basalt sphinx";
const OPEN: &str =
    "what is the number of green lanterns beneath the quiet mountain when seven rivers run past it";

/// Two open benchmarks and a sensitive one, and rows that hold their items.
fn case() -> Case {
    let case = Case::new();
    let benchmark = |name: &str, text: &str, sensitive: bool| {
        case.put(&format!("{name}.jsonl"), json!({"id": "1", "question": text}).to_string() + "\n");
        case.put(
            &format!("{name}.toml"),
            format!("name = \"{name}\"\nfiles = [\"{name}.jsonl\"]\nprompt = \"question\"\nid = \"id\"\nsensitive = {sensitive}\n"),
        );
    };
    benchmark("hostile", HOSTILE, false);
    benchmark("open", OPEN, false);
    benchmark("secret", SECRET, true);
    let hits = lines([
        chat(&format!("before {HOSTILE} after"), "fine"),
        chat(&format!("Tell me: {OPEN}?"), "fine"),
        chat(&format!("{SECRET} and {OPEN}"), "fine"),
        chat("nothing", &format!("it says {SECRET}")),
    ]);
    case.put("a.jsonl", chats(40) + &hits);
    case.put("b.jsonl", chats(80) + &lines([chat(&format!("Once more, {OPEN}"), "")]));
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[[source]]\nname = \"b\"\npath = \"b.jsonl\"\n\
         [decontaminate]\nbenchmarks = [\"hostile.toml\", \"open.toml\", \"secret.toml\"]\n",
    );
    case
}

fn report(case: &Case) -> String {
    std::fs::read_to_string(case.path("out/report.html")).unwrap()
}

fn made() -> (Case, String) {
    let case = case();
    let data = case.prep("out", &[]);
    assert_eq!(data.number("/decontamination/benchmarks/2/rows_dropped"), 2, "{}", data.manifest);
    let html = report(&case);
    (case, html)
}

/// Tags with their attributes.
fn tags(html: &str) -> Vec<&str> {
    html.split('<').skip(1).filter_map(|piece| piece.split('>').next()).collect()
}

#[test]
fn the_text_of_a_row_is_never_markup() {
    let (_case, html) = made();
    assert!(
        html.contains(
            "&lt;script&gt;alert(&#39;owned&#39;)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"
        ),
        "{html}"
    );
    assert!(html.contains("\\u{202e}turned\\u{0}"));
    let names: BTreeSet<&str> =
        tags(&html).iter().map(|tag| tag.split([' ', '\n']).next().unwrap().trim_matches('/')).collect();
    for name in ["script", "img", "iframe", "object", "link", "base", "form"] {
        assert!(!names.contains(name), "<{name}> in the report");
    }
    assert!(tags(&html).iter().all(|tag| !tag.contains(" on") && !tag.contains("src=")));
}

#[test]
fn the_match_is_marked() {
    let (_case, html) = made();
    let mark = html.split("<mark>").find(|piece| piece.contains("green lanterns")).unwrap();
    let mark = mark.split("</mark>").next().unwrap();
    assert!(mark.contains(
        "what is the number of green lanterns beneath the quiet mountain when seven rivers run past it"
    ));
    assert!(!mark.contains("Tell me") && html.contains("Tell me: <mark>"));
}

#[test]
fn no_text_of_a_row_that_matches_a_sensitive_benchmark_is_in_the_report() {
    let (_case, html) = made();
    for word in SECRET.split(' ') {
        assert!(!html.contains(word), "`{word}` leaked");
    }
    assert!(html.contains("Matches a sensitive benchmark"));
    assert!(html.contains("a/a.jsonl:43"), "the row is named");
    // The row that holds an open item beside the secret one is not quoted either.
    let row = html.split("a/a.jsonl:42</span>").nth(1).unwrap().split("</li>").next().unwrap();
    assert!(!row.contains("<blockquote"), "{row}");
}

#[test]
fn the_report_fetches_nothing_and_forbids_scripts() {
    let (_case, html) = made();
    assert!(html.contains("default-src 'none'; style-src 'unsafe-inline'"));
    assert!(
        !html.contains("http://")
            && !html.contains("https://")
            && !html.contains("url(")
            && !html.contains("@import")
    );
}

#[test]
fn tables_have_captions_and_scopes_and_ids_are_unique() {
    let (_case, html) = made();
    let count = |what: &str| html.matches(what).count();
    assert_eq!(count("<table"), count("<caption>"));
    assert_eq!(count("<h1>"), 1);
    for landmark in ["<header>", "<nav aria-label=", "<main id=\"main\">", "<footer>", "lang=\"en\""] {
        assert_eq!(count(landmark), 1, "{landmark}");
    }
    let heads: Vec<&str> =
        tags(&html).into_iter().filter(|tag| tag.starts_with("th ") || *tag == "th").collect();
    assert!(!heads.is_empty() && heads.iter().all(|tag| tag.contains("scope=\"")), "{heads:?}");
    assert!(tags(&html).iter().filter(|tag| tag.starts_with("svg")).all(|tag| tag.contains("aria-label=\"")));
    let ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|piece| piece.split('"').next()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for id in html.split("href=\"#").skip(1).filter_map(|piece| piece.split('"').next()) {
        assert!(ids.contains(&id), "#{id} leads nowhere");
    }
}

#[test]
fn the_heat_map_has_the_counts_of_the_manifest() {
    let (case, html) = made();
    let manifest = case.data("out").manifest;
    for benchmark in manifest["decontamination"]["benchmarks"].as_array().unwrap() {
        let name = benchmark["name"].as_str().unwrap();
        let row = html.split(&format!("<tr><th scope=\"row\">{name}")).nth(1).unwrap();
        let row = row.split("</tr>").next().unwrap();
        let cells: Vec<u64> = row
            .split("<td class=\"cell ")
            .skip(1)
            .map(|cell| cell.split(['>', '<']).nth(1).unwrap().parse().unwrap())
            .collect();
        let of = |source: &str| benchmark["per_source"][source]["dropped"].as_u64().unwrap_or_default();
        assert_eq!(cells, [of("a"), of("b")], "{name}");
        assert_eq!(cells.iter().sum::<u64>(), benchmark["rows_dropped"].as_u64().unwrap());
    }
}

#[test]
fn the_report_is_the_same_for_any_threads_and_cut_and_in_no_digest() {
    let (case, html) = made();
    let digest = case.data("out").digest().to_owned();
    let args =
        ["--fresh", "--threads", "1", "--unit-bytes", "700", "--chunk-bytes", "300", "--reverse-units"];
    assert_eq!(case.run("out", &args).code, 0);
    assert_eq!(report(&case), html);
    let data = case.data("out");
    assert_eq!(data.digest(), digest);
    assert!(!data.manifest.to_string().contains("report.html"));
}

#[test]
fn rows_that_were_not_checked_are_said_to_be() {
    let case = Case::new();
    case.put("a.jsonl", chats(5));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n");
    case.prep("out", &[]);
    assert!(report(&case).contains("<strong>The rows were not checked against any benchmark.</strong>"));
}

#[test]
fn each_phase_has_a_report() {
    let case = Case::new();
    case.put("a.jsonl", chats(20));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[[phase]]\nname = \"one\"\n[[phase]]\nname = \"two\"\n");
    assert_eq!(case.run("out", &[]).code, 0);
    for phase in ["one", "two"] {
        let html = std::fs::read_to_string(case.path(&format!("out/{phase}/report.html"))).unwrap();
        assert!(html.contains(&format!("<h1>t, phase {phase}</h1>")));
    }
}
