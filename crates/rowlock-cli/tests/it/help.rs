//! Help, completions, manual pages.

use crate::support::{program, run};

#[tokio::test]
async fn help_of_each_command() {
    for command in [
        &["work"][..],
        &["bench"],
        &["enqueue"],
        &["config"],
        &["config", "check"],
        &["config", "show"],
        &["config", "diff"],
        &["completions"],
        &["man"],
    ] {
        let arguments = [command, &["--help"]].concat();
        let ran = run(program(std::env::temp_dir().as_path(), &arguments)).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        insta::assert_snapshot!(format!("help_{}", command.join("_")), ran.out);
    }
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
    let page = std::fs::read_to_string(dir.path().join("new/man1/rowlock-work.1")).unwrap();
    assert!(
        page.contains(".TH rowlock-work 1") || page.contains(".TH rowlock\\-work 1"),
        "{page}"
    );
}
