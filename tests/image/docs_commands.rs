//! The commands of `docs/image.md` that need no daemon and no other machine, run as they stand.
//!
//! What it deliberately does not do: run those for Docker, or those for two platforms at once. What they are told is the same.

use std::process::Command;

use crate::isolation::{Machine, alone, run};

#[test]
fn every_command_of_podman_on_the_page_is_run() {
    alone(|machine: &Machine| {
        let page = std::fs::read_to_string("docs/image.md").unwrap();
        let context = machine.files.parent().unwrap().to_str().unwrap();
        let blocks = page.split("```sh\n").skip(1);
        let blocks = blocks.map(|block| block.split("```").next().unwrap());
        let commands = blocks.flat_map(str::lines);
        let commands = commands.filter(|line| line.starts_with("podman "));
        let mut last = String::new();
        let mut count = 0;
        for command in commands {
            let command = command.replace("target/image", context);
            // As a shell would, but for a namespace of its own that has no way out.
            last = run(Command::new("sh").args(["-ec", &command]));
            count += 1;
        }
        assert!(count >= 2, "the page has {count}");
        assert!(last.contains("good, "), "{last}");
    });
}
