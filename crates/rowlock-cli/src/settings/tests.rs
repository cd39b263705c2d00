//! The configuration as a whole: what is read, what is refused, what wins.

use std::time::Duration;

use super::*;

fn load(text: &str, overrides: &Overrides) -> Loaded {
    let source = Source {
        name: "rowlock.toml".into(),
        text: text.into(),
    };
    Loaded::of(source, overrides)
}

fn problems(text: &str) -> String {
    load(text, &Overrides::default())
        .rendered(|_| true)
        .join("\n")
}

/// What every file here needs to be usable.
const HANDLER: &str = "[handler.a]\ncommand = [\"true\"]\n";

fn environment(pairs: &[(&str, &str)]) -> Overrides {
    Overrides {
        environment: pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
        ..Overrides::default()
    }
}

#[test]
fn the_smallest_file_has_all_defaults() {
    let settings = load(HANDLER, &environment(&[("DATABASE_URL", "host=h user=u")]))
        .usable()
        .unwrap();
    assert_eq!(settings.worker.concurrency, 10);
    assert_eq!(settings.worker.grace, Duration::from_secs(30));
    assert_eq!(settings.queues.len(), 1);
    assert_eq!(settings.queues[0].name, "*");
    assert_eq!(settings.database.schema, "rowlock");
    assert_eq!(settings.http.address, None);
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let text = format!("[worker]\nconcurrency = 1\npoll = \"2s\"\ngrace = \"3s\"\n{HANDLER}");
    let mut over = environment(&[
        ("ROWLOCK_WORKER_CONCURRENCY", "2"),
        ("ROWLOCK_WORKER_POLL", "4s"),
    ]);
    over.flag("worker.concurrency", "--concurrency", Some(3));
    let loaded = load(&text, &over);
    let origin = |path: &str| {
        let entry = loaded.entries.iter().find(|e| e.path == path).unwrap();
        (plain(&entry.shown), entry.origin.to_string())
    };
    assert_eq!(
        origin("worker.concurrency"),
        ("3".into(), "flag --concurrency".into())
    );
    assert_eq!(
        origin("worker.poll"),
        ("4s".into(), "environment ROWLOCK_WORKER_POLL".into())
    );
    assert_eq!(origin("worker.grace"), ("3s".into(), "line 4".into()));
    assert_eq!(origin("worker.ahead"), ("1000".into(), "default".into()));
}

#[test]
fn a_bad_variable_is_named() {
    let loaded = load(
        HANDLER,
        &environment(&[
            ("ROWLOCK_WORKER_POLL", "often"),
            ("ROWLOCK_WORKER_CONCURENCY", "5"),
        ]),
    );
    let text = loaded.rendered(|_| true).join("\n");
    assert!(
        text.contains("worker.poll (environment ROWLOCK_WORKER_POLL): \"often\" is no duration"),
        "{text}"
    );
    assert!(
        text.contains("did you mean ROWLOCK_WORKER_CONCURRENCY?"),
        "{text}"
    );
}

#[test]
fn variables_that_an_orchestrator_makes_are_left_alone() {
    let over = environment(&[
        ("ROWLOCK_WORKER_SERVICE_HOST", "10.0.0.1"),
        ("ROWLOCK_HTTP_PORT_9090_TCP", "tcp://10.0.0.1:9090"),
    ]);
    assert!(load(HANDLER, &over).problems.is_empty());
}

#[test]
fn strict_order_needs_a_list() {
    let sections = format!("[worker]\norder = \"strict\"\n[queue.a]\n[queue.b]\n{HANDLER}");
    assert!(problems(&sections).contains("nothing says in which order"));
    let listed = sections.replace("order =", "queues = [\"b\", \"a\"]\norder =");
    assert_eq!(problems(&listed), "");
}

#[test]
fn a_section_of_a_queue_that_is_not_served_is_refused() {
    let text = format!("[worker]\nqueues = [\"mail\"]\n[queue.mial]\nweight = 2\n{HANDLER}");
    let text = problems(&text);
    assert!(
        text.contains("queue \"mial\" is not in worker.queues")
            && text.contains("did you mean \"mail\"?"),
        "{text}"
    );
}

#[test]
fn settings_are_stored_for_names_not_for_patterns() {
    let text = format!("[queue.\"t-*\".stored]\nmax_attempts = 3\n{HANDLER}");
    assert!(problems(&text).contains("is a pattern"));
    let text = format!(
        "[queue.t.stored]\nretention = \"1d\"\nlease = \"1m\"\nbackoff = \"fixed 5s\"\n[queue.t.stored.kind.k]\ntimeout = \"9s\"\n{HANDLER}"
    );
    let settings = load(&text, &environment(&[("DATABASE_URL", "host=h user=u")]))
        .usable()
        .unwrap();
    let stored = serde_json::to_value(&settings.queues[0].stored).unwrap();
    assert_eq!(stored["retention"], "1 days 0 seconds");
    assert_eq!(stored["lease_ms"], 60_000);
    assert_eq!(stored["backoff"]["base_ms"], 5000);
    assert_eq!(stored["kinds"]["k"]["timeout_ms"], 9000);
}

#[test]
fn a_handler_is_a_command_or_a_url() {
    for (text, part) in [
        ("[handler.a]\n", "neither a command nor a url"),
        (
            "[handler.a]\ncommand = \"x\"\nurl = \"http://x\"\n",
            "both a command and a url",
        ),
        ("[handler.a]\ncommand = []\n", "the command is empty"),
        ("[handler.a]\ncommand = \"\"\n", "the command is empty"),
        (
            "[handler.a]\ncommand = 5\n",
            "must be a list of texts, or a text for the shell, not a whole number",
        ),
        ("[handler.a]\nurl = \"ftp://x\"\n", "neither http nor https"),
        (
            "[handler.a]\nurl = \"http://x\"\nkill_grace = \"1s\"\n",
            "means nothing here: this handler has a url",
        ),
        (
            "[handler.a]\ncommand = \"x\"\nsecret = \"s\"\n",
            "means nothing here: this handler has a command",
        ),
        (
            "[handler.a]\ncommand = \"x\"\nq = 1\n",
            "known are command, dir, env, env_clear, kill_grace, output_max, exit, timeout",
        ),
        (
            "[handler.email.welcome]\ncommand = \"x\"\n",
            "needs quotes: [handler.\"email.welcome\"]",
        ),
        (
            "[handler.a]\nurl = \"http://x\"\n[handler.a.status]\n999 = \"dead\"\n",
            "is not a status",
        ),
        (
            "[handler.a]\ncommand = \"x\"\nexit = { 300 = \"dead\" }\n",
            "is not an exit code",
        ),
        (
            "[handler.a]\ncommand = \"x\"\nexit = { 3 = \"die\" }\n",
            "is no outcome",
        ),
        (
            "[handler.a]\nurl = \"http://x\"\nheaders = { \"a b\" = \"c\" }\n",
            "is no name of a header",
        ),
        ("", "there is no [handler.KIND] section"),
    ] {
        let found = problems(text);
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn tables_are_enough_to_work_on_unless_queues_are_named() {
    let table = "[table.t]\ncommand = \"true\"\non_done = \"delete\"\n";
    let settings = load(table, &environment(&[("DATABASE_URL", "host=h user=u")]))
        .usable()
        .unwrap();
    assert!(settings.handlers.is_empty());
    assert_eq!(settings.tables[0].name, "t");
    assert_eq!(settings.tables[0].timeout, Duration::from_secs(300));
    let found = problems(&format!("[queue.mail]\n{table}"));
    assert!(
        found.contains("nothing would be done for the queues"),
        "{found}"
    );
    let found = problems("[handler]\n[table]\n");
    assert!(found.contains("nothing to run"), "{found}");
}

#[test]
fn rows_that_are_kept_need_a_condition() {
    let table = "[table.t]\ncommand = \"true\"\non_done = { set = \"done = true\" }\n";
    assert!(problems(table).contains("does not say which rows are pending"));
    assert_eq!(problems(&format!("{table}pending = \"not done\"\n")), "");
    for (more, part) in [
        ("pending = \" \"\n", "pending \" \" is empty"),
        ("pending = \"x\"\ntable = \"a b\"\n", "needs double quotes"),
        ("pending = \"x\"\nlisten = \"a b\"\n", "needs double quotes"),
        (
            "pending = \"x\"\nsecret = \"s\"\n",
            "this handler has a command",
        ),
        (
            "pending = \"x\"\non_failed = { set = \"\" }\n",
            "on_failed \"\" is empty",
        ),
    ] {
        let found = problems(&format!("{table}{more}"));
        assert!(found.contains(part), "{more}: {found}");
    }
}

#[test]
fn traces_are_off_until_somebody_names_a_collector() {
    let database = ("DATABASE_URL", "host=h user=u");
    let traces = |text: &str, more: &[(&str, &str)]| {
        let text = format!("{text}{HANDLER}");
        let loaded = load(&text, &environment(&[&[database], more].concat()));
        for entry in &loaded.entries {
            assert!(!entry.shown.to_string().contains("hunter2"), "{entry:?}");
        }
        loaded.usable().unwrap().traces
    };
    assert_eq!(traces("[traces]\nsample = 0.5\n", &[]), None);
    let empty = ("OTEL_EXPORTER_OTLP_ENDPOINT", "");
    assert_eq!(traces("", &[empty]), None);
    let found = traces(
        "[traces]\nendpoint = \"http://file:1\"\nsample = 1\nheaders = { Authorization = \"hunter2\" }\n",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:hunter2@outside:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2%3D, b=2,"),
            ("OTEL_SERVICE_NAME", "mailer"),
        ],
    )
    .unwrap();
    assert_eq!(
        found.endpoint.reveal(),
        "http://u:hunter2@outside:4318/v1/traces"
    );
    assert_eq!((found.service_name.as_str(), found.sample), ("mailer", 1.0));
    let headers: Vec<(&str, &str)> = found
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.reveal()))
        .collect();
    assert_eq!(headers, [("authorization", "hunter2="), ("b", "2")]);
}

#[test]
fn what_is_wrong_with_traces_is_said() {
    for (text, part) in [
        ("endpoint = \"ftp://x\"", "neither http nor https"),
        ("endpoint = \"collector\"", "the endpoint cannot be read"),
        (
            "sample = 1.5",
            "traces.sample must be from 0.0 to 1.0, not 1.5",
        ),
        (
            "sample = \"all\"",
            "must be a number from 0 to 1, not a text",
        ),
        ("headers = { \"a b\" = \"c\" }", "is no name of a header"),
        ("service_name = \" \"", "service_name is empty"),
        ("endpont = \"http://x\"", "did you mean \"endpoint\"?"),
    ] {
        let found = problems(&format!("[traces]\n{text}\n{HANDLER}"));
        assert!(found.contains(part), "{text}: {found}");
    }
    let asked = |name: &str, value: &str| {
        let over = environment(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"), (name, value)]);
        load(HANDLER, &over).rendered(|_| true).join("\n")
    };
    assert!(asked("OTEL_EXPORTER_OTLP_HEADERS", "hunter2").contains("cannot be read"));
    assert!(!asked("OTEL_EXPORTER_OTLP_HEADERS", "hunter2").contains("hunter2"));
    assert!(asked("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").contains("sent as http/protobuf"));
    assert_eq!(asked("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), "");
}

#[test]
fn secrets_are_found_and_never_shown() {
    let text = "[database]\nurl = \"postgres://u:hunter2@h/d\"\n[handler.a]\nurl = \"http://u:hunter2@x/?t=hunter2\"\nsecret = { env = \"S\" }\n\
                headers = { Authorization = \"hunter2\", Accept = \"text/plain\" }\n";
    let loaded = load(text, &environment(&[("S", "hunter2")]));
    for entry in &loaded.entries {
        assert!(
            !entry.shown.to_string().contains("hunter2"),
            "{}",
            entry.path
        );
    }
    assert!(
        loaded
            .entries
            .iter()
            .any(|e| e.path == "handler.a.headers.Accept" && e.shown == "text/plain")
    );
    let settings = loaded.usable().unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
    let Action::Http(http) = &settings.handlers[0].action else {
        panic!("{:?}", settings.handlers)
    };
    assert_eq!(http.secret.as_ref().unwrap().reveal(), "hunter2");
}

#[test]
fn a_secret_that_is_not_here_is_for_whoever_uses_the_file() {
    let text = "[handler.a]\nurl = { env = \"NOT_SET\" }\n[handler.b]\nurl = { file = \"/does/not/exist\" }\n";
    let loaded = load(text, &Overrides::default());
    assert!(!loaded.is_wrong());
    let refused = loaded.usable().unwrap_err().to_string();
    assert!(
        refused.contains("the variable NOT_SET is not set") && refused.contains("/does/not/exist"),
        "{refused}"
    );
}

#[test]
fn codes_have_defaults_and_classes() {
    let text = "[handler.a]\nurl = \"http://x\"\n[handler.a.status]\n404 = \"dead\"\n4xx = \"snooze 1m\"\n";
    let settings = load(text, &environment(&[("DATABASE_URL", "host=h user=u")]))
        .usable()
        .unwrap();
    let Action::Http(http) = &settings.handlers[0].action else {
        panic!("{:?}", settings.handlers)
    };
    let retry = Reaction::Retry(None);
    for (status, reaction) in [
        (204, Reaction::Done),
        (302, retry),
        (404, Reaction::Dead),
        (409, Reaction::Snooze(Duration::from_secs(60))),
        (410, Reaction::Cancel),
        (422, Reaction::Dead),
        (500, retry),
    ] {
        assert_eq!(http.status.reaction(status), reaction, "{status}");
    }
}
