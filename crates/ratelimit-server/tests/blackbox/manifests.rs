//! The manifests of `examples/deploy`, held to what the server reads and serves.

use std::{
    fs,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

use ratelimit_tests::redis::TestRedis;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::server::{CHECK, PATIENCE, Server, binary};

const COMPOSE: &str = include_str!("../../../../examples/deploy/compose.yaml");
const SERVER: &str = include_str!("../../../../examples/deploy/config/server.yaml");
const KUBERNETES: &str = include_str!("../../../../examples/deploy/kubernetes.yaml");
const SERVICE_MONITOR: &str = include_str!("../../../../examples/deploy/servicemonitor.yaml");
const PAGE: &str = include_str!("../../../../docs/guides/containers.md");
const DOCKERFILE: &str = include_str!("../../Dockerfile");
const IGNORED: [&str; 2] = [
    include_str!("../../../../.gitignore"),
    include_str!("../../../../.dockerignore"),
];

/// The documents of a YAML file. Plain numbers and words stay texts, but `true`, `false` and whole numbers.
fn yaml(text: &str) -> Vec<Value> {
    let (mut documents, mut open) = (Vec::new(), Vec::<(Value, Option<String>)>::new());
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let mut done = match event.unwrap().0 {
            Event::SequenceStart(..) => {
                open.push((Value::Array(Vec::new()), None));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((Value::Object(Map::new()), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().unwrap().0,
            Event::Scalar(text, ScalarStyle::Plain, ..) => match serde_json::from_str(&text) {
                Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
                _ => Value::from(text.into_owned()),
            },
            Event::Scalar(text, ..) => Value::from(text.into_owned()),
            Event::Alias(_) => panic!("an alias"),
            _ => continue,
        };
        match open.last_mut() {
            None => documents.push(done),
            Some((Value::Array(items), _)) => items.push(done),
            Some((Value::Object(members), name @ None)) => {
                let key = done.as_str().expect("a name").to_owned();
                assert!(!members.contains_key(&key), "{key} twice");
                *name = Some(key);
            }
            Some((Value::Object(members), name)) => {
                members.insert(name.take().unwrap(), done.take());
            }
            Some(_) => unreachable!("only lists and tables are open"),
        }
    }
    documents
}

/// The object of a kind and name.
fn object(kind: &str, name: &str) -> Value {
    let mut found = yaml(KUBERNETES);
    found.retain(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    assert_eq!(found.len(), 1, "{kind} {name}");
    found.remove(0)
}

fn pod() -> Value {
    object("Deployment", "ratelimit")["spec"]["template"]["spec"].clone()
}

type Variables = Vec<(String, String)>;

/// The settings of a file of the server, and what the file stands for: `(where, text, variables)`.
fn deployments() -> [(&'static str, String, Variables); 2] {
    let compose = yaml(COMPOSE).remove(0);
    let service = &compose["services"]["ratelimit"];
    let variables = service["environment"].as_object().unwrap();
    let variables = variables.iter();
    let of_compose = variables.map(|(name, value)| (name.clone(), text(value)));
    assert_eq!(service["volumes"][0], "./config:/etc/ratelimit:ro");

    let secrets = created_secrets();
    let of_pod = pod()["containers"][0]["env"].as_array().unwrap().clone();
    let of_pod = of_pod.iter().map(|variable| {
        let key = &variable["valueFrom"]["secretKeyRef"];
        let value = if key.is_null() {
            text(&variable["value"])
        } else {
            secret(&secrets, &key["key"])
        };
        (text(&variable["name"]), value)
    });
    let config = object("ConfigMap", "ratelimit");
    [
        ("compose", SERVER.to_owned(), of_compose.collect()),
        (
            "kubernetes",
            text(&config["data"]["server.yaml"]),
            of_pod.collect(),
        ),
    ]
}

/// The keys and values of the Secret that the page creates.
fn created_secrets() -> Vec<(String, String)> {
    let (_, command) = PAGE
        .split_once("kubectl -n ratelimit create secret generic ratelimit ")
        .expect("a command that creates the Secret");
    let command = command.split("```").next().unwrap();
    let literals = command.split("--from-literal=").skip(1);
    let literals = literals.map(|literal| literal.split_once('=').unwrap());
    let literals = literals.map(|(key, value)| {
        let value = value.trim_end().trim_end_matches('\\').trim_end();
        (key.to_owned(), value.to_owned())
    });
    literals.collect()
}

fn secret(secrets: &[(String, String)], key: &Value) -> String {
    let found = secrets.iter().find(|(name, _)| key == name);
    let (_, value) = found.unwrap_or_else(|| panic!("the page creates no {key}"));
    value.clone()
}

/// Every member with a text as its value, with its name, and the `value` of each variable with that of the variable.
fn named_texts(value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| named_texts(item, found)),
        Value::Object(members) => {
            if let (Some(name), Some(value)) = (value["name"].as_str(), value["value"].as_str()) {
                found.push((name.to_owned(), value.to_owned()));
            }
            for (name, member) in members {
                if let Some(text) = member.as_str() {
                    found.push((name.clone(), text.to_owned()));
                }
                named_texts(member, found);
            }
        }
        _ => {}
    }
}

/// The variables that the image sets.
fn image_variables() -> Vec<(String, String)> {
    let line = DOCKERFILE
        .lines()
        .find_map(|line| line.strip_prefix("ENV "));
    let variables = line.unwrap().split_whitespace();
    let variables = variables.filter_map(|variable| variable.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables: Vec<_> = variables.collect();
    assert_eq!(variables[0].0, "RATELIMIT_LISTEN");
    variables
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value}"))
        .to_owned()
}

fn seconds(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => text.strip_suffix('s').unwrap().parse().unwrap(),
        None => value.as_u64().unwrap(),
    }
}

/// Writes the file and a token, and replaces the paths of the variables by those.
fn written(dir: &TempDir, file: &str, variables: &[(String, String)]) -> Vec<(String, String)> {
    let [config, token] = ["server.yaml", "admin-token"].map(|name| dir.path().join(name));
    fs::write(&config, file).unwrap();
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let replaced = |(name, value): &(String, String)| {
        let value = match name.as_str() {
            "RATELIMIT_CONFIG" => config.to_str().unwrap().to_owned(),
            "RATELIMIT_ADMIN_TOKEN_FILE" => token.to_str().unwrap().to_owned(),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    variables.iter().map(replaced).collect()
}

#[test]
fn the_page_shows_the_manifests_as_they_are() {
    for manifest in [COMPOSE, SERVER, KUBERNETES] {
        assert!(PAGE.contains(&format!("```yaml\n{manifest}```\n")));
    }
}

/// Compose writes inline content into the container, which fails if its file system is read-only.
#[test]
fn read_only_services_have_their_settings_from_files() {
    let compose = yaml(COMPOSE).remove(0);
    let mut seen = 0;
    for (name, service) in compose["services"].as_object().unwrap() {
        if service["read_only"] != true {
            continue;
        }
        assert!(service["configs"].is_null(), "{name}: a mounted file");
        for source in service["secrets"].as_array().unwrap() {
            let source = &compose["secrets"][source.as_str().unwrap()];
            assert!(source["file"].is_string(), "{name}: {source}");
            assert!(source["content"].is_null(), "{name}: {source}");
            seen += 1;
        }
        // An editor replaces a file: only a mounted folder shows the new one.
        for volume in service["volumes"].as_array().unwrap() {
            let folder = text(volume).split(':').next().unwrap().to_owned();
            assert!(
                folder.starts_with("./") && !folder.contains("yaml"),
                "{folder}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

#[test]
fn the_page_creates_every_secret_that_the_pod_reads() {
    let secrets = created_secrets();
    let pod = pod();
    let mut read = Vec::new();
    for variable in pod["containers"][0]["env"].as_array().unwrap() {
        let source = &variable["valueFrom"]["secretKeyRef"];
        if !source.is_null() {
            assert_eq!(source["name"], "ratelimit");
            read.push(&source["key"]);
        }
    }
    for volume in pod["volumes"].as_array().unwrap() {
        let source = &volume["secret"];
        if !source.is_null() {
            assert_eq!(source["secretName"], "ratelimit");
            let items = source["items"].as_array().unwrap();
            read.extend(items.iter().map(|item| &item["key"]));
        }
    }

    assert_eq!(read.len(), secrets.len(), "{secrets:?}");
    for key in read {
        secret(&secrets, key);
    }
    let token = secret(&secrets, &"admin-token".into());
    assert_eq!(token, "\"$(openssl rand -hex 32)\"", "each has its own");
}

/// A token of a published file would be the token of everybody who forgets to replace it.
#[test]
fn no_manifest_contains_a_token() {
    let mut texts = Vec::new();
    let settings = deployments().map(|(_, file, _)| file);
    for file in [COMPOSE, KUBERNETES, &settings[0], &settings[1]] {
        for document in yaml(file) {
            assert_ne!(document["kind"], "Secret");
            named_texts(&document, &mut texts);
        }
    }
    let mut files = 0;
    for (name, value) in texts {
        match name.to_lowercase().replace('_', "-").as_str() {
            "admin-token" | "ratelimit-admin-token" => panic!("{name}: {value}"),
            "ratelimit-admin-token-file" => files += 1,
            _ => {}
        }
    }
    assert_eq!(files, 2);

    let token = text(&yaml(COMPOSE).remove(0)["secrets"]["admin-token"]["file"]);
    let folder = format!("examples/deploy/{}", token.rsplit_once('/').unwrap().0);
    for list in IGNORED {
        let mut lines = list.lines();
        assert!(lines.any(|line| line.trim_start_matches('/') == folder));
    }
}

#[test]
fn every_variable_and_every_setting_of_the_manifests_is_known() {
    for (place, file, variables) in deployments() {
        let dir = TempDir::new().unwrap();
        let mut command = binary();
        command.envs(image_variables());
        command.envs(written(&dir, &file, &variables));
        command.args(["check-config", "--strict"]);
        command.arg(dir.path().join("server.yaml"));

        let output = command.output().unwrap();

        assert!(output.status.success(), "{place}: {output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(!told.contains("warning"), "{place}: {told}");
        assert_eq!(variables.len(), 3, "{place}");
    }
}

#[tokio::test]
async fn the_server_starts_as_deployed_and_answers_its_probes() {
    let redis = TestRedis::start().await;
    let container = pod()["containers"][0].clone();
    for (place, file, variables) in deployments() {
        let dir = TempDir::new().unwrap();
        let variables = written(&dir, &file, &variables);
        // Other ports than the file, and another Redis than the environment.
        let mut args = vec!["--admin-listen", "127.0.0.1:0", "--redis", redis.url()];
        if file.contains("envoy-listen") {
            args.extend(["--envoy-listen", "127.0.0.1:0"]);
        }
        let server = Server::start_with(&args, |command| {
            command.envs(image_variables()).envs(variables);
        });
        let (_, admin) = server.banner.split_once("metrics    http://").unwrap();
        let admin = admin.split('/').next().unwrap();

        for probe in ["readinessProbe", "livenessProbe"] {
            let path = text(&container[probe]["httpGet"]["path"]);
            let url = format!("http://{admin}{path}");
            let start = Instant::now();
            while !binary()
                .args(["health", &url])
                .output()
                .unwrap()
                .status
                .success()
            {
                assert!(start.elapsed() < PATIENCE, "{place}: {probe}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let unknown = format!("http://{admin}/actuator/health/ready");
        assert!(
            !binary()
                .args(["health", &unknown])
                .output()
                .unwrap()
                .status
                .success()
        );
        let checked = server.get(&format!("{CHECK}?key=k&policy=login")).await;
        assert_eq!(checked.status, 200, "{place}: {checked:?}");
    }
}

#[test]
fn ports_of_probes_services_and_settings_match() {
    let container = pod()["containers"][0].clone();
    let ports = container["ports"].as_array().unwrap();
    let port = |name: &Value| {
        let found = ports.iter().find(|port| port["name"] == *name);
        found.unwrap_or_else(|| panic!("{name}"))["containerPort"].as_u64()
    };
    let file = yaml(&deployments()[1].1).remove(0);
    let listens = |address: &str| {
        let (host, port) = address.rsplit_once(':').unwrap();
        assert_eq!(host, "0.0.0.0", "a pod is called by its address");
        port.parse().ok()
    };

    // The variable of the image goes before the file.
    assert!(file["listen"].is_null());
    let (_, listen) = image_variables().swap_remove(0);
    assert_eq!(listens(&listen), port(&"http".into()));
    let admin = text(&file["admin-listen"]);
    assert_eq!(listens(&admin), port(&"admin".into()));
    assert_eq!(listens(&text(&file["envoy-listen"])), port(&"grpc".into()));
    for probe in ["readinessProbe", "livenessProbe"] {
        assert!(port(&container[probe]["httpGet"]["port"]).is_some());
    }
    let envoy = object("Service", "ratelimit-envoy");
    assert_eq!(envoy["spec"]["clusterIP"], "None");
    let monitor = yaml(SERVICE_MONITOR).remove(0);
    let admin = object("Service", "ratelimit-admin");
    let labels = &monitor["spec"]["selector"]["matchLabels"];
    assert_eq!(*labels, admin["metadata"]["labels"]);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], admin["spec"]["ports"][0]["name"]);
    assert_eq!(endpoint["path"], "/actuator/prometheus");
    for name in ["ratelimit", "ratelimit-envoy", "ratelimit-admin"] {
        let service = object("Service", name);
        let of_service = &service["spec"]["ports"][0];
        assert_eq!(of_service["port"].as_u64(), port(&of_service["targetPort"]));
        assert_eq!(service["spec"]["selector"]["app"], "ratelimit");
    }
    let ingress = object("NetworkPolicy", "ratelimit")["spec"]["ingress"].clone();
    let opened = [0, 1].map(|rule: usize| ingress[rule]["ports"][0]["port"].as_u64());
    assert_eq!(opened, [Some(8080), Some(9090)]);
    assert_eq!(ingress[0]["ports"][1]["port"], 8081);
    assert!(DOCKERFILE.contains("EXPOSE 8080\n"));
}

#[test]
fn the_time_to_stop_is_longer_than_the_drain() {
    let [compose, kubernetes] = deployments().map(|(_, file, _)| {
        let file = yaml(&file).remove(0);
        seconds(&file["drain-delay"]) + seconds(&file["shutdown-timeout"]) + 3
    });
    let probe = pod()["containers"][0]["readinessProbe"].clone();
    let noticed = seconds(&probe["periodSeconds"]) * seconds(&probe["failureThreshold"]);
    let drain = yaml(&deployments()[1].1).remove(0);

    assert!(seconds(&pod()["terminationGracePeriodSeconds"]) > kubernetes);
    let grace = yaml(COMPOSE).remove(0)["services"]["ratelimit"]["stop_grace_period"].clone();
    assert!(seconds(&grace) > compose);
    assert!(seconds(&drain["drain-delay"]) > noticed + 2);
}

#[test]
fn the_pod_is_not_root_and_bounded_and_mounts_what_it_reads() {
    let pod = pod();
    let container = &pod["containers"][0];
    let user = pod["securityContext"]["runAsUser"].as_u64().unwrap();

    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(DOCKERFILE.contains(&format!("\nUSER {user}")));
    assert_eq!(
        container["securityContext"]["allowPrivilegeEscalation"],
        false
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let resources = &container["resources"];
    assert!(!resources["requests"]["cpu"].is_null());
    assert!(
        resources["limits"]["cpu"].is_null(),
        "throttled checks are late"
    );
    // The local fallback alone may take 256 MiB.
    let memory = text(&resources["limits"]["memory"]);
    let memory: u64 = memory.strip_suffix("Mi").unwrap().parse().unwrap();
    assert!(memory >= 2 * 256, "{memory}");
    let compose_memory = text(&yaml(COMPOSE).remove(0)["services"]["ratelimit"]["mem_limit"]);
    assert_eq!(compose_memory, format!("{memory}m"));
    let mounts = container["volumeMounts"].as_array().unwrap();
    for (name, value) in &deployments()[1].2 {
        if !value.starts_with('/') {
            continue;
        }
        let (folder, _) = value.rsplit_once('/').unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == folder);
        let mount = mount.unwrap_or_else(|| panic!("{name}"));
        assert!(mount["subPath"].is_null(), "{name}");
    }
    let service = yaml(COMPOSE).remove(0)["services"]["ratelimit"].clone();
    assert!(text(&service["user"]).starts_with(&user.to_string()));
    for port in service["ports"].as_array().unwrap() {
        assert!(text(port).starts_with("127.0.0.1:"), "{port}");
    }
}

/// Kubernetes writes a new folder and swaps a link, so that the path of the file stays.
#[tokio::test]
async fn a_changed_config_map_is_read_again() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (folder, limit) in [("..1", "1/h"), ("..2", "3/h")] {
        fs::create_dir(path(folder)).unwrap();
        fs::write(
            path(folder).join("server.yaml"),
            format!("policy: {{ api: {limit} }}\n"),
        )
        .unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    symlink("..data/server.yaml", path("server.yaml")).unwrap();
    let server = Server::start(&["--config", path("server.yaml").to_str().unwrap()]);
    let limit = async || {
        let answer = server.get(&format!("{CHECK}?key=k&policy=api")).await;
        answer.header("x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit().await.as_deref(), Some("1"));

    symlink("..2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();

    let start = Instant::now();
    while limit().await.as_deref() != Some("3") {
        assert!(start.elapsed() < PATIENCE, "the new file is not read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
