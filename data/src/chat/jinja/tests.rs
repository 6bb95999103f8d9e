use super::*;

/// Templates, and the text that transformers 5.24 with Jinja 3.1.6 makes of each; null where it refuses.
const CASES: &str = include_str!("cases.json");

fn render(source: &str, variables: &[(&str, RowValue)]) -> Result<String, String> {
    let date = NaiveDate::from_ymd_opt(2026, 11, 25).unwrap();
    let template = Template::parse(source, date).map_err(|error| error.message)?;
    template.render(variables).map(|it| it.text).map_err(|error| error.message)
}

#[test]
fn templates_render_as_transformers_renders_them() {
    let cases: Vec<(String, Option<String>)> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 70);
    let messages: RowValue = serde_json::from_str(
        r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "it's é\n"}]"#,
    )
    .unwrap();
    for (source, expected) in cases {
        let found = render(&source, &[("messages", messages.clone())]);
        match expected {
            Some(expected) => assert_eq!(found.as_deref(), Ok(&*expected), "{source}"),
            None => assert!(found.is_err(), "{source}: {found:?}"),
        }
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (source, words) in [
        ("{{ 'a'.encode() }}", "'encode'"),
        ("{{ 'a'|xmlattr }}", "'xmlattr'"),
        ("{{ 1 is filter }}", "'filter'"),
        ("{% do x %}", "'do'"),
        ("{{ [].append(1) }}", "'append'"),
        ("{{ x.__class__ }}{{ 'a'.__class__ }}", "'x'"),
        ("{{ 'a'.__class__ }}", "'__class__'"),
    ] {
        let refused = render(source, &[]).unwrap_err();
        assert!(refused.contains(words), "{source}: {refused}");
    }
}

/// Each of these exhausts the stack, the memory or the time where nothing bounds it.
#[test]
fn hostile_templates_are_refused() {
    let repeated = |part: &str, count| part.repeat(count);
    let list = format!("{{{{ {}{} }}}}", repeated("[", 20_000), repeated("]", 20_000));
    let sum = format!("{{{{ 1{} }}}}", repeated(" + 1", 20_000));
    let joined = format!("{{{{ 1{} }}}}", repeated(" ~ 1", 20_000));
    let not = format!("{{{{ {} 1 }}}}", repeated("not ", 20_000));
    let minus = format!("{{{{ {} 1 }}}}", repeated("- ", 20_000));
    let attributes = format!("{{{{ x{} }}}}", repeated(".a", 20_000));
    let filters = format!("{{{{ 1{} }}}}", repeated("|string", 20_000));
    let ifs = format!("{{{{ 1{} }}}}", repeated(" if 1 else 1", 20_000));
    let blocks = format!("{}{}", repeated("{% if 1 %}", 20_000), repeated("{% endif %}", 20_000));
    let parts = format!(
        "{{% for {}a{} in x %}}{{% endfor %}}",
        repeated("(", 20_000),
        repeated(")", 20_000)
    );
    for source in [
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == ns.a }}",
        "{% set ns = namespace(v=1) %}{% for i in range(20000) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}",
        "{% set ns = namespace(v=1) %}{% for i in range(20000) %}{% set ns.v = {'a': ns.v} %}{% endfor %}{{ ns.v|tojson }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'|indent(1000000000) }}",
        "{{ 'a'|center(1000000000) }}",
        "{{ ('a' * 100000).replace('a', 'a' * 100000) }}",
        "{{ range(1000000000) }}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(v='a') %}{% for i in range(60) %}{% set ns.v = ns.v ~ ns.v %}{% endfor %}",
        "{{ 10 ** 100 }}",
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(64) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{{ ('a' * 1000000)|list|length }}",
        "{{ (',' * 1000000).split(',')|length }}",
        "{{ ('\n' * 1000000).splitlines()|length }}",
        "{{ (' a' * 1000000).split()|length }}",
        &list,
        &sum,
        &joined,
        &not,
        &minus,
        &attributes,
        &filters,
        &ifs,
        &blocks,
        &parts,
    ] {
        let refused = render(source, &[]);
        assert!(refused.is_err(), "{source:.80}: {:.80}", refused.unwrap_or_default());
    }
}

#[test]
fn arbitrary_templates_never_panic() {
    let cases: Vec<(String, Option<String>)> = serde_json::from_str(CASES).unwrap();
    for case in 0..4000_u64 {
        let random = crate::permutation::mix(case);
        let source = &cases[random as usize % cases.len()].0;
        let mut chars: Vec<char> = source.chars().collect();
        for round in 0..1 + case % 4 {
            let random = crate::permutation::mix(random ^ round);
            let at = (random >> 16) as usize % chars.len().max(1);
            let other = (random >> 40) as usize % chars.len().max(1);
            match random % 3 {
                0 if !chars.is_empty() => {
                    drop(chars.drain(at..chars.len().min(at + 1 + other % 9)))
                }
                1 if !chars.is_empty() => {
                    chars[at] = "0{}%[]()|'\"-+*.~:,é".chars().nth(other % 19).unwrap_or('a')
                }
                _ if !chars.is_empty() => chars.swap(at, other),
                _ => {}
            }
        }
        let _ = render(&chars.into_iter().collect::<String>(), &[]);
    }
}
