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

/// All commands with their help, the program itself among them.
pub(crate) async fn of_every_command() -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut left = vec![Vec::new()];
    while let Some(command) = left.pop() {
        let text = help(&command).await;
        left.extend(
            commands(&text)
                .into_iter()
                .map(|c| [&command[..], &[c]].concat()),
        );
        all.push((command, text));
    }
    assert!(all.len() > 33, "{}: were they all found?", all.len());
    all
}

#[tokio::test]
async fn help_of_every_command() {
    for (command, text) in of_every_command().await {
        if command.is_empty() {
            insta::assert_snapshot!("help", text);
            continue;
        }
        let name = command.join(" ");
        assert!(text.contains("\nExamples:\n"), "{name}:\n{text}");
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{name}");
        insta::assert_snapshot!(format!("help_{}", command.join("_")), own(&text));
    }
}

/// Under 50 ms, the best of a few on a machine that is busy with other tests.
#[test]
fn it_starts_at_once() {
    let took = |_| {
        let began = std::time::Instant::now();
        let ran = program(std::env::temp_dir().as_path(), &["--version"]).output();
        assert!(ran.unwrap().status.success());
        began.elapsed()
    };
    let best = (0..30).map(took).min().unwrap();
    assert!(best < std::time::Duration::from_millis(50), "{best:?}");
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
