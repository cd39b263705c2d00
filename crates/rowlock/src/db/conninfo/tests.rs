//! What a text and its surroundings mean together.

use proptest::prelude::*;

use super::options::{Host, Roots};
use super::surroundings::{FileStat, Pretend};
use super::*;

#[track_caller]
fn info(text: &str) -> ConnInfo {
    info_in(text, &Pretend::new())
}

#[track_caller]
fn info_in(text: &str, around: &Pretend) -> ConnInfo {
    let built = resolve(text, around).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(built.warnings, Vec::<String>::new(), "{text}");
    built.info
}

#[track_caller]
fn error(text: &str) -> String {
    resolve(text, &Pretend::new()).expect_err(text).to_string()
}

fn password(info: &ConnInfo) -> Option<&str> {
    info.endpoints[0].password.as_ref().map(Secret::expose)
}

fn places(info: &ConnInfo) -> Vec<String> {
    info.endpoints.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_those_of_libpq_and_of_a_queue() {
    let info = info("");
    assert_eq!(
        (info.user(), info.dbname(), info.application_name()),
        ("ann", "ann", "rowlock")
    );
    assert_eq!(places(&info), ["localhost:5432"]);
    assert_eq!(info.connect_timeout, Some(Duration::from_secs(10)));
    assert_eq!(info.tcp_user_timeout, Some(Duration::from_secs(30)));
    let keepalive = info.keepalive.unwrap();
    assert_eq!(keepalive.idle, Some(Duration::from_secs(30)));
    assert_eq!(keepalive.interval, Some(Duration::from_secs(10)));
    assert_eq!(keepalive.retries, Some(3));
    assert_eq!(info.ssl_mode(), SslMode::Prefer);
    assert_eq!(password(&info), None);
}

#[cfg(unix)]
#[test]
fn a_local_socket_is_preferred_if_there_is_one() {
    let socket = FileStat {
        is_regular: false,
        open_to_others: true,
    };
    let around = Pretend::new().file_with("/var/run/postgresql/.s.PGSQL.5433", "", socket);
    assert_eq!(
        places(&info_in("port=5433", &around)),
        ["/var/run/postgresql/.s.PGSQL.5433"]
    );
    assert_eq!(places(&info_in("", &around)), ["localhost:5432"]);
    assert_eq!(
        places(&info_in("host=,b port=5433", &around)),
        ["/var/run/postgresql/.s.PGSQL.5433", "b:5433"]
    );
}

#[test]
fn what_is_given_wins_over_the_environment() {
    let around = Pretend::new()
        .var("PGHOST", "env-host")
        .var("PGPORT", "6000")
        .var("PGDATABASE", "env-db")
        .var("PGUSER", "env-user")
        .var("PGPASSWORD", "env-password")
        .var("PGAPPNAME", "env-app")
        .var("PGCONNECT_TIMEOUT", "3")
        .var("PGSSLMODE", "require")
        .var("PGTARGETSESSIONATTRS", "read-write")
        .var("PGOPTIONS", "-c a=b")
        .var("PGUSERS", "ignored");
    let from_env = info_in("", &around);
    assert_eq!((from_env.user(), from_env.dbname()), ("env-user", "env-db"));
    assert_eq!(places(&from_env), ["env-host:6000"]);
    assert_eq!(password(&from_env), Some("env-password"));
    assert_eq!(from_env.application_name(), "env-app");
    assert_eq!(from_env.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(from_env.ssl_mode(), SslMode::Require);
    assert_eq!(from_env.target_session_attrs, TargetSessionAttrs::ReadWrite);
    assert_eq!(from_env.options.as_deref(), Some("-c a=b"));

    let given = info_in(
        "postgres://u:p@h:1/d?sslmode=disable&target_session_attrs=any",
        &around,
    );
    assert_eq!(
        (given.user(), given.dbname(), password(&given)),
        ("u", "d", Some("p"))
    );
    assert_eq!(places(&given), ["h:1"]);
    assert_eq!(given.ssl_mode(), SslMode::Disable);
    assert_eq!(given.application_name(), "env-app");
}

#[test]
fn an_empty_value_hides_the_environment() {
    let around = Pretend::new().var("PGUSER", "env-user").var("PGHOST", "");
    assert_eq!(info_in("user=''", &around).user(), "ann");
    assert_eq!(places(&info_in("", &around)), ["localhost:5432"]);
}

#[test]
fn a_service_comes_between_text_and_environment() {
    let around = Pretend::new()
        .var("PGHOST", "env-host")
        .var("PGUSER", "env-user")
        .file(
            "/home/ann/.pg_service.conf",
            "[app]\nhost=service-host\nport=1\n",
        );
    let info = info_in("service=app port=2", &around);
    assert_eq!(places(&info), ["service-host:2"]);
    assert_eq!(info.user(), "env-user");
}

#[test]
fn hosts_ports_and_addresses_go_together() {
    assert_eq!(
        places(&info("host=a,b,c port=1,,3")),
        ["a:1", "b:5432", "c:3"]
    );
    assert_eq!(places(&info("host=a,b port=7")), ["a:7", "b:7"]);
    assert_eq!(places(&info("postgres://a:1,[::1]:2/")), ["a:1", "[::1]:2"]);
    assert_eq!(
        places(&info("hostaddr=10.0.0.1,::1")),
        ["10.0.0.1:5432", "[::1]:5432"]
    );
    let both = info("host=a,b hostaddr=10.0.0.1,");
    assert_eq!(
        both.endpoints[0].hostaddr,
        Some("10.0.0.1".parse().unwrap())
    );
    assert_eq!(both.endpoints[1].hostaddr, None);
    assert_eq!(
        info("host=/tmp/x").endpoints[0].host,
        Host::Socket("/tmp/x".into())
    );

    assert!(error("host=a,b,c port=1,2").contains("port has 2 entries for 3 servers"));
    assert!(
        error("host=a,b hostaddr=10.0.0.1")
            .contains("host names 2 servers and hostaddr names 1 server")
    );
    assert!(error("hostaddr=localhost").contains("must be an IP address"));
    assert!(error("host=@abstract").contains("abstract"));
}

#[test]
fn wrong_values_are_named_with_their_rule() {
    assert_eq!(
        error("port=65536"),
        "invalid value \"65536\" for port: must be a number from 1 to 65535"
    );
    assert_eq!(
        error("sslmode=on"),
        "invalid value \"on\" for sslmode: must be one of disable, allow, prefer, require, verify-ca, verify-full"
    );
    for text in [
        "port=0",
        "port=x",
        "port=-1",
        "connect_timeout=soon",
        "keepalives=2",
        "keepalives_idle=1.5",
        "tcp_user_timeout=1s",
        "channel_binding=yes",
        "load_balance_hosts=round",
        "target_session_attrs=rw",
        "client_encoding=LATIN1",
        "gssencmode=require",
        "postgres://h/db?port=",
        "user=a\0b",
        "password=a\0b",
    ] {
        let outcome = resolve(text, &Pretend::new());
        // An empty port is the default port, everything else is refused.
        assert_eq!(outcome.is_ok(), text.ends_with("port="), "{text}");
    }
}

#[test]
fn a_scheme_of_another_system_is_named() {
    assert!(error("mysql://u:hunter2@h/db").contains("unknown URL scheme \"mysql\""));
    for text in [
        "postgress://u:hunter2@h/db?sslmode=x",
        "x y://u:hunter2@h?a=b",
        "port=5432password=hunter2",
    ] {
        assert!(!error(text).contains("hunter2"), "{text}");
    }
}

#[test]
fn blanks_around_a_text_do_not_count() {
    assert_eq!(info(" \tpostgres://h/db\n").dbname(), "db");
    assert_eq!(info("\n dbname=db \n").dbname(), "db");
    assert_eq!(info("dbname=db\\ ").dbname(), "db ");
}

#[test]
fn numbers_below_one_mean_no_limit() {
    let info = info(
        "connect_timeout=0 tcp_user_timeout=0 keepalives_idle=0 keepalives_interval=-1 keepalives_count=0",
    );
    assert_eq!((info.connect_timeout, info.tcp_user_timeout), (None, None));
    assert_eq!(
        info.keepalive,
        Some(Keepalive {
            idle: None,
            interval: None,
            retries: None
        })
    );
    assert_eq!(self::info("keepalives=0").keepalive, None);
    let set = self::info("connect_timeout=7 tcp_user_timeout=1500 keepalives_count=9");
    assert_eq!(set.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(set.tcp_user_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(set.keepalive.unwrap().retries, Some(9));
}

#[test]
fn application_name_has_a_fallback() {
    assert_eq!(
        info("fallback_application_name=psql").application_name(),
        "psql"
    );
    assert_eq!(
        info("fallback_application_name=psql application_name=x").application_name(),
        "x"
    );
}

#[test]
fn without_any_user_the_error_says_how_to_give_one() {
    let around = Pretend {
        nameless: true,
        ..Pretend::new()
    };
    assert_eq!(resolve("", &around).unwrap_err(), ConnInfoError::NoUser);
    assert_eq!(resolve("user=u", &around).unwrap().info.user(), "u");
}

// --- Password files --------------------------------------------------------------------------------------------------

#[test]
fn the_password_file_gives_each_host_its_own() {
    let around = Pretend::new().file(
        "/home/ann/.pgpass",
        "a:5432:*:ann:one\nb:1:app:ann:two\nlocalhost:*:*:*:three\n",
    );
    let info = info_in("host=a,b,c port=5432,1,1 dbname=app", &around);
    let passwords: Vec<_> = info
        .endpoints
        .iter()
        .map(|e| e.password.as_ref().map(Secret::expose))
        .collect();
    assert_eq!(passwords, [Some("one"), Some("two"), None]);
    assert_eq!(password(&info_in("", &around)), Some("three"));
    #[cfg(unix)]
    assert_eq!(password(&info_in("host=/tmp", &around)), Some("three"));
    assert_eq!(
        password(&info_in("host=a password=given", &around)),
        Some("given")
    );
    assert_eq!(password(&info_in("hostaddr=10.0.0.1", &around)), None);
}

#[test]
fn a_password_file_open_to_others_is_left_alone() {
    let open = FileStat {
        is_regular: true,
        open_to_others: true,
    };
    let around = Pretend::new().file_with("/home/ann/.pgpass", "*:*:*:*:hunter2", open);
    let built = resolve("host=a", &around).unwrap();
    assert_eq!(password(&built.info), None);
    assert_eq!(built.warnings.len(), 1);
    assert!(built.warnings[0].contains("/home/ann/.pgpass is open to group or others"));
}

#[test]
fn a_named_password_file_must_exist_to_go_unmentioned() {
    let built = resolve("passfile=/nowhere", &Pretend::new()).unwrap();
    assert!(
        built.warnings[0].contains("/nowhere does not exist"),
        "{:?}",
        built.warnings
    );
    let directory = FileStat {
        is_regular: false,
        open_to_others: false,
    };
    let around = Pretend::new()
        .var("PGPASSFILE", "/dir")
        .file_with("/dir", "", directory);
    let built = resolve("", &around).unwrap();
    assert!(
        built.warnings[0].contains("not a plain file"),
        "{:?}",
        built.warnings
    );
}

// --- TLS -------------------------------------------------------------------------------------------------------------

#[test]
fn root_certificates_come_from_where_libpq_looks() {
    assert_eq!(info("").tls.roots, Roots::None);
    assert_eq!(info("sslrootcert=/ca").tls.roots, Roots::File("/ca".into()));
    let around = Pretend::new().file("/home/ann/.postgresql/root.crt", "");
    let default_root = Roots::File("/home/ann/.postgresql/root.crt".into());
    assert_eq!(
        info_in("sslmode=verify-full", &around).tls.roots,
        default_root
    );
    // With sslmode=disable nothing of it matters.
    assert_eq!(
        info_in("sslmode=disable", &around).tls,
        TlsSettings {
            mode: SslMode::Disable,
            ..TlsSettings::default()
        }
    );
}

#[test]
fn system_roots_need_the_name_to_be_checked() {
    assert_eq!(info("sslrootcert=system").ssl_mode(), SslMode::VerifyFull);
    assert!(error("sslrootcert=system sslmode=verify-ca").contains("too weak"));
}

#[test]
fn verification_needs_something_to_verify_by() {
    assert!(error("sslmode=verify-ca").contains("sslrootcert"));
    assert!(error("sslmode=verify-full").contains("sslrootcert"));
}

#[test]
fn certificate_and_key_go_together() {
    let client = info("sslcert=/c sslkey=/k").tls.client.unwrap();
    assert_eq!(
        (client.cert.to_str(), client.key.to_str()),
        (Some("/c"), Some("/k"))
    );
    assert!(error("sslcert=/c").contains("sslkey"));
    assert!(error("sslkey=/k").contains("sslcert"));
    let around = Pretend::new().file("/home/ann/.postgresql/postgresql.key", "");
    assert_eq!(info_in("", &around).tls.client, None);
    assert_eq!(
        info_in("sslcert=/c", &around)
            .tls
            .client
            .unwrap()
            .cert
            .to_str(),
        Some("/c")
    );
}

// --- What is shown ---------------------------------------------------------------------------------------------------

#[test]
fn shown_as_a_url_without_the_password() {
    let info = info(
        "user='a b' password=hunter2 host=/tmp,h,::1 port=1,2,3 dbname=d/e options='-c a=b' sslmode=allow",
    );
    let url =
        "postgresql://a%20b:***@%2Ftmp:1,h:2,[%3A%3A1]:3/d%2Fe?sslmode=allow&options=-c%20a%3Db";
    assert_eq!(info.to_string(), url);
    assert_eq!(format!("{info:?}"), format!("ConnInfo({url})"));
}

#[test]
fn changed_settings_are_shown_changed() {
    let info = info("host=h")
        .with_application_name("worker")
        .with_dbname("jobs")
        .with_password("hunter2");
    assert_eq!(
        info.to_string(),
        "postgresql://ann:***@h:5432/jobs?application_name=worker"
    );
    assert_eq!(password(&info), Some("hunter2"));
}

/// `keyword='value'` pairs, each of which is valid alone and with the others.
fn valid_settings() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let text = || "[^\0,@/]{1,8}";
    let number = || (-2..100_000_i32).prop_map(|n| n.to_string());
    let words = |list: &'static [&'static str]| prop::sample::select(list).prop_map(str::to_owned);
    let hosts = prop::collection::vec(("[a-z0-9.:-]{1,9}|/[a-z/ %]{0,9}", 1..=u16::MAX), 1..4)
        .prop_map(|list| {
            let (hosts, ports): (Vec<_>, Vec<_>) =
                list.into_iter().map(|(h, p)| (h, p.to_string())).unzip();
            (hosts.join(","), ports.join(","))
        });
    let who = (text(), text(), "[^\0]{1,8}", "[^\0]{1,8}");
    let tls = (
        words(&[
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "verify-full",
        ]),
        words(&["disable", "prefer", "require"]),
        words(&[
            "any",
            "read-write",
            "read-only",
            "primary",
            "standby",
            "prefer-standby",
        ]),
        words(&["disable", "random"]),
    );
    let numbers = (
        number(),
        number(),
        number(),
        number(),
        number(),
        words(&["0", "1"]),
    );
    (hosts, who, tls, numbers).prop_map(|((host, port), who, tls, numbers)| {
        vec![
            ("host", host),
            ("port", port),
            ("user", who.0),
            ("dbname", who.1),
            ("application_name", who.2),
            ("options", who.3),
            ("sslmode", tls.0),
            ("sslrootcert", "/ca file".to_owned()),
            ("channel_binding", tls.1),
            ("target_session_attrs", tls.2),
            ("load_balance_hosts", tls.3),
            ("connect_timeout", numbers.0),
            ("tcp_user_timeout", numbers.1),
            ("keepalives_idle", numbers.2),
            ("keepalives_interval", numbers.3),
            ("keepalives_count", numbers.4),
            ("keepalives", numbers.5),
        ]
    })
}

fn as_text(settings: &[(&str, String)]) -> String {
    let quote = |value: &str| value.replace('\\', r"\\").replace('\'', r"\'");
    let pairs: Vec<_> = settings
        .iter()
        .map(|(k, v)| format!("{k}='{}'", quote(v)))
        .collect();
    pairs.join(" ")
}

proptest! {
    #[test]
    fn what_is_shown_reads_back_as_the_same(settings in valid_settings()) {
        let first = info(&as_text(&settings));
        let shown = first.to_string();
        prop_assert_eq!(info(&shown), first, "{}", shown);
    }

    #[test]
    fn nothing_shown_contains_the_password(
        settings in valid_settings(),
        secret in "[~!]{3}[ -~]{0,8}[~!]{3}",
        spoiled in 0..17_usize,
        junk in "[^\0]{0,8}",
    ) {
        let mut settings = settings;
        settings.push(("password", secret.clone()));
        let text = as_text(&settings);
        let info = info(&text);
        for shown in [info.to_string(), format!("{info:?}"), format!("{:?}", info.endpoints)] {
            prop_assert!(!shown.contains(&secret), "{}", shown);
        }

        // However the rest is spoiled, no error repeats it.
        settings[spoiled].1 = junk;
        if let Err(error) = resolve(&as_text(&settings), &Pretend::new()) {
            prop_assert!(!error.to_string().contains(&secret), "{}", error);
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = resolve(&text, &Pretend::new());
    }
}
