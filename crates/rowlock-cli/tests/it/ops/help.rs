//! Help, and errors that help. Snapshots, so that a change of words is seen in review.

use super::support::{program, run};

async fn raw_help(command: &str) -> String {
    let mut args: Vec<&str> = command.split(' ').filter(|a| !a.is_empty()).collect();
    args.push("--help");
    run(program(&args)).await.expect(0).out
}

/// The help of a command without what all commands take: that is said once, in `rowlock --help`.
async fn help(command: &str) -> String {
    let common = raw_help("").await;
    let flag = |line: &str| {
        let words = line.split_whitespace();
        words
            .map(|w| w.trim_end_matches(',').to_owned())
            .find(|w| w.starts_with("--"))
    };
    let common: Vec<String> = common
        .lines()
        .filter(|l| l.starts_with("  "))
        .filter_map(flag)
        .collect();
    let help = raw_help(command).await;
    let own = |block: &&str| {
        let first = block.lines().find(|l| l.trim_start().starts_with('-'));
        first
            .and_then(flag)
            .is_none_or(|flag| !common.contains(&flag))
    };
    let blocks: Vec<&str> = help.split("\n\n").filter(own).collect();
    blocks.join("\n\n")
}

#[tokio::test]
async fn help_has_examples() {
    for command in [
        "jobs",
        "jobs retry",
        "jobs cancel",
        "jobs delete",
        "jobs show",
        "dead",
        "dead redrive",
        "dead discard",
        "queues",
        "queues set",
        "queues pause",
        "queues purge",
        "workers",
        "why",
        "doctor",
        "archive",
        "replay",
        "top",
    ] {
        let text = help(command).await;
        assert!(text.contains("Examples:"), "{command}: {text}");
        insta::assert_snapshot!(format!("help {command}").replace(' ', "_"), text);
    }
}

#[tokio::test]
async fn mistakes_are_explained() {
    for (name, args) in [
        ("unknown_state", &["jobs", "--state", "asleep"][..]),
        ("bad_time", &["jobs", "--older-than", "soon"]),
        ("bad_payload", &["jobs", "--payload", "user"]),
        ("bad_id", &["jobs", "show", "seven"]),
        ("zero_limit", &["jobs", "--limit", "0"]),
        (
            "unreachable",
            &["jobs", "-d", "host=127.0.0.1 port=1 sslmode=disable"],
        ),
    ] {
        let ran = run(program(args)).await;
        assert_ne!(ran.code, 0);
        insta::assert_snapshot!(
            format!("mistake_{name}"),
            format!("exit {}\n{}", ran.code, ran.err)
        );
    }
}
