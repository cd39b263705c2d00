//! Help, completions, manual pages.

use crate::support::{program, run};

/// Where the help of a command says what all commands take.
const EVERYWHERE: &str = "With every command:";

async fn help(command: &[String]) -> String {
    let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    arguments.push("--help");
    let ran = run(program(std::env::temp_dir().as_path(), &arguments)).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran.out
}

/// The commands that a help text names.
fn commands(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let section = section.split("\n\n").next().unwrap_or_default();
    let names = section.lines().filter(|l| !l.starts_with("   "));
    let names = names.filter_map(|l| l.split_whitespace().next());
    names.filter(|n| *n != "help").map(str::to_owned).collect()
}

/// The help without what all commands take: that is looked at once, in `rowlock --help`.
fn own(help: &str) -> String {
    let Some((before, after)) = help.split_once(EVERYWHERE) else {
        panic!("what every command takes is not in\n{help}");
    };
    // The section ends where a line is not indented any more.
    let rest = after.lines().skip(1);
    let rest: Vec<&str> = rest
        .skip_while(|l| l.is_empty() || l.starts_with(' '))
        .collect();
    format!("{before}{}\n", rest.join("\n"))
}

#[tokio::test]
async fn help_of_every_command() {
    let whole = help(&[]).await;
    insta::assert_snapshot!("help", whole);
    let mut left: Vec<Vec<String>> = commands(&whole).into_iter().map(|c| vec![c]).collect();
    let mut seen = 0;
    while let Some(command) = left.pop() {
        let text = help(&command).await;
        let name = command.join(" ");
        assert!(text.contains("\nExamples:\n"), "{name}:\n{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
            let example = line.trim_start().strip_prefix("rowlock ");
            if let Some(example) = example.filter(|e| !e.starts_with(&name)) {
                let word = example.split_whitespace().next().unwrap_or_default();
                assert!(commands(&whole).iter().any(|c| c == word), "{name}: {line}");
            }
        }
        insta::assert_snapshot!(format!("help_{}", command.join("_")), own(&text));
        left.extend(
            commands(&text)
                .into_iter()
                .map(|c| [&command[..], &[c]].concat()),
        );
        seen += 1;
    }
    assert!(seen >= 33, "{seen} commands: were they all found?");
}

#[tokio::test]
async fn completions_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(program(
            std::env::temp_dir().as_path(),
            &["completions", shell],
        ))
        .await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.out.contains("enqueue"), "{shell}");
    }
}

#[tokio::test]
async fn a_manual_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(program(dir.path(), &["man", "new/man1"])).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for name in ["rowlock", "rowlock-work", "rowlock-jobs-retry"] {
        let page = std::fs::read_to_string(dir.path().join(format!("new/man1/{name}.1"))).unwrap();
        let escaped = name.replace('-', "\\-");
        assert!(
            page.contains(&format!(".TH {name} 1")) || page.contains(&format!(".TH {escaped} 1")),
            "{page}"
        );
    }
}
