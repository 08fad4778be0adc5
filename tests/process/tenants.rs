//! `docs/tenants.md`: runs every command of the page, in its order, on the rules of the page.

use std::process::Command;

use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

/// The blocks of this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    let text = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    text.collect()
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let page = std::fs::read_to_string("docs/tenants.md").unwrap();
    let [rules] = &*blocks(&page, "yaml") else {
        panic!("one block of rules");
    };
    let service = Tollgate::start(rules, &[]);
    let admin = format!("--admin=http://{}", service.admin);
    let run = |line: &str| {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("tollgate"), "{line}");
        let mut command = Command::new(tollgate_binary());
        let output = command.args(words).arg(&admin).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{line}: {text}");
        text
    };
    let commands = blocks(&page, "sh").concat();
    let said: Vec<String> = commands.lines().map(run).collect();
    let [pro, limit, unlimited, blocked, list, deleted] = &*said else {
        panic!("six commands: {said:#?}");
    };
    for (said, part) in [
        (pro, "customer=ACME-7: plan pro until "),
        (pro, ", by support, reason launch"),
        (limit, "customer=ACME-8: 500 per day until "),
        (unlimited, "customer=ACME-9: unlimited until "),
        (blocked, "customer=ACME-10: blocked until "),
        (deleted, ": ended"),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(list.lines().count(), 4, "{list}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, rules).unwrap();
    let explain = |customer: &str| {
        run(&format!(
            "tollgate explain {} shop customer={customer}",
            path.display()
        ))
    };
    for (customer, part) in [("ACME-8", ": 500 per day until "), ("ACME-7", ": none\n")] {
        let said = explain(customer);
        assert!(said.contains("override at "), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(service.metric("tollgate_overrides"), 3);
}
