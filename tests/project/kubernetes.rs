//! The manifests of Kubernetes: each overlay is built by kustomize and decoded strictly by the program in
//! `.ci/kubernetes`; what the objects name exists, and programs take their flags.
//!
//! `KUBERNETES_CHECK_BINARY` is that program; without it, the tests are skipped.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::compose::{flag, path, strings, yaml};
use super::scale_out::{run, server_takes, thanos_takes};

/// Objects of an overlay.
struct Overlay(Vec<Value>);

impl Overlay {
    /// Returns the objects. `None`, with a message, without the program that builds them.
    fn build(name: &str) -> Option<Overlay> {
        let folder = path("deploy/kubernetes").join(name).display().to_string();
        let output = run("KUBERNETES_CHECK_BINARY", &[&folder])?;
        assert!(output.status.success(), "{name}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
        Some(Overlay(objects.collect()))
    }

    fn of_kind(&self, kind: &str) -> BTreeMap<&str, &Value> {
        let objects = self.0.iter().filter(|object| object["kind"] == kind);
        objects.map(|object| (object["metadata"]["name"].as_str().unwrap(), object)).collect()
    }

    /// Deployments and stateful sets.
    fn workloads(&self) -> BTreeMap<&str, &Value> {
        let mut workloads = self.of_kind("Deployment");
        workloads.append(&mut self.of_kind("StatefulSet"));
        workloads
    }

    /// Workloads whose pods have all labels of a selector.
    fn selected(&self, selector: &Value) -> Vec<&str> {
        let selector = selector.as_object().unwrap();
        assert!(!selector.is_empty());
        let has_labels = |workload: &Value| {
            let labels = &workload["spec"]["template"]["metadata"]["labels"];
            selector.iter().all(|(name, value)| labels[name] == *value)
        };
        let workloads = self.workloads();
        workloads
            .iter()
            .filter(|(_, workload)| has_labels(workload))
            .map(|(name, _)| *name)
            .collect()
    }
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

fn container(workload: &Value) -> &Value {
    let containers = pod(workload)["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    &containers[0]
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().map(|item| item["name"].as_str().unwrap()).collect()
}

/// Arguments of a container, with the values of its environment variables.
fn arguments(overlay: &Overlay, workload: &Value) -> Vec<String> {
    let container = container(workload);
    let mut variables = Map::new();
    for source in container["envFrom"].as_array().into_iter().flatten() {
        if let Some(name) = source["configMapRef"]["name"].as_str() {
            let data = overlay.of_kind("ConfigMap")[name]["data"].as_object().unwrap();
            variables.extend(data.clone());
        }
    }
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    for variable in container["env"].as_array().into_iter().flatten() {
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap();
        let label = field.strip_prefix("metadata.labels['").unwrap().strip_suffix("']").unwrap();
        let name = variable["name"].as_str().unwrap().to_owned();
        variables.insert(name, labels[label].clone());
    }
    let expand = |argument: &str| {
        let expanded = variables.iter().fold(argument.to_owned(), |text, (name, value)| {
            text.replace(&format!("$({name})"), value.as_str().unwrap())
        });
        assert!(!expanded.contains("$("), "{expanded}");
        expanded
    };
    strings(&container["args"]).into_iter().map(expand).collect()
}

fn check(overlay: &Overlay) {
    let unique: BTreeSet<_> = overlay
        .0
        .iter()
        .map(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()))
        .collect();
    assert_eq!(unique.len(), overlay.0.len());
    for (name, workload) in overlay.workloads() {
        assert_eq!(overlay.selected(&workload["spec"]["selector"]["matchLabels"]), [name]);
        is_restricted(name, workload);
        finds_its_volumes(overlay, name, workload);
        is_probed(name, workload);
        takes_its_flags(overlay, name, workload);
        is_spread(overlay, name, workload);
        has_its_account_and_secrets(overlay, name, workload);
    }
    for (name, service) in overlay.of_kind("Service") {
        let selected = overlay.selected(&service["spec"]["selector"]);
        let [workload] = selected[..] else { panic!("{name}: {selected:?}") };
        let ports = names(&container(overlay.workloads()[workload])["ports"]);
        for port in service["spec"]["ports"].as_array().unwrap() {
            assert!(ports.contains(port["targetPort"].as_str().unwrap()), "{name}: {port}");
        }
    }
    for (name, budget) in overlay.of_kind("PodDisruptionBudget") {
        assert_eq!(overlay.selected(&budget["spec"]["selector"]["matchLabels"]), [name]);
        assert!(overlay.workloads()[name]["spec"]["replicas"].as_u64() > Some(1), "{name}");
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{name}");
    }
    // No other namespace reaches gRPC.
    let policies = overlay.of_kind("NetworkPolicy");
    let rules = policies["tessella"]["spec"]["ingress"].as_array().unwrap();
    let is_open = |rule: &&Value| rule["from"][0]["namespaceSelector"].is_object();
    let open: Vec<&Value> = rules.iter().filter(is_open).collect();
    assert_eq!((rules.len(), open.len()), (2, 1));
    assert_eq!(open[0]["ports"], serde_json::json!([{"port": 9090}, {"port": 10902}]));
}

/// Several pods are spread over machines and zones, by the labels of their workload.
fn is_spread(overlay: &Overlay, name: &str, workload: &Value) {
    let pod = pod(workload);
    let spread = &pod["topologySpreadConstraints"][0];
    if workload["spec"]["replicas"].as_u64() > Some(1) {
        assert_eq!(overlay.selected(&spread["labelSelector"]["matchLabels"]), [name]);
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let other = &pod["affinity"]["podAntiAffinity"][preferred][0]["podAffinityTerm"];
        assert_eq!(overlay.selected(&other["labelSelector"]["matchLabels"]), [name]);
    }
}

/// Nodes use the service account of the overlay and do not start without their secret. Their cache is part of
/// their requests.
fn has_its_account_and_secrets(overlay: &Overlay, name: &str, workload: &Value) {
    let Some(account) = pod(workload)["serviceAccountName"].as_str() else {
        assert_eq!(workload["metadata"]["labels"]["app.kubernetes.io/name"], "thanos", "{name}");
        return;
    };
    assert!(overlay.of_kind("ServiceAccount").contains_key(account), "{name}");
    let container = container(workload);
    let sources = container["envFrom"].as_array().unwrap();
    let secrets = sources.iter().filter(|source| source["secretRef"].is_object());
    let secrets: Vec<&Value> = secrets.collect();
    assert_eq!(secrets, [&serde_json::json!({"secretRef": {"name": "object-store"}})], "{name}");
    let cache = &pod(workload)["volumes"][0]["emptyDir"]["sizeLimit"];
    assert_eq!(container["resources"]["requests"]["ephemeral-storage"], *cache, "{name}");
}

/// Sum of a resource that all pods request: CPUs, or GiB.
fn requested(overlay: &Overlay, resource: &str) -> f64 {
    let of_pod = |workload: &Value| {
        let text = container(workload)["resources"]["requests"][resource].as_str();
        let text = text.unwrap_or("0");
        match text.strip_suffix('m') {
            Some(thousandths) => thousandths.parse::<f64>().unwrap() / 1000.0,
            None => text.trim_end_matches("Gi").parse().unwrap(),
        }
    };
    let workloads = overlay.workloads();
    let all = workloads.values();
    all.map(|workload| workload["spec"]["replicas"].as_f64().unwrap() * of_pod(workload)).sum()
}

#[test]
fn the_document_has_the_sums_of_requests() {
    let Some(scale_out) = Overlay::build("scale-out") else { return };
    let [single, readers] = ["single", "with-readers"].map(|name| Overlay::build(name).unwrap());
    let sums = |overlay| {
        ["cpu", "memory", "ephemeral-storage"].map(|resource| requested(overlay, resource))
    };
    let [cpu, memory, storage] = sums(&scale_out);
    let [single_cpu, single_memory, single_storage] = sums(&single);
    let [readers_cpu, readers_memory, readers_storage] = sums(&readers);
    let expected = format!(
        "`scale-out` request {cpu} CPUs, {memory} GiB of memory and {storage} GiB of ephemeral storage; \
         `with-readers` requests {readers_cpu} CPUs, {readers_memory} GiB and {readers_storage} GiB; \
         `single` requests {single_cpu} CPU, {single_memory} GiB and {single_storage} GiB."
    );
    let document = super::compose::text("docs/kubernetes.md").replace('\n', " ");
    assert!(document.contains(&expected), "{expected}");
}

/// The rules of the profile `restricted`, and no writes to the image.
fn is_restricted(name: &str, workload: &Value) {
    let (pod, container) = (pod(workload), container(workload));
    assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
    assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
    assert_eq!(strings(&security["capabilities"]["drop"]), ["ALL"], "{name}");
    let resources = &container["resources"];
    assert!(resources["requests"]["cpu"].is_string(), "{name}");
    assert_eq!(resources["requests"]["memory"], resources["limits"]["memory"], "{name}");
}

/// Mounts are of volumes of the pod, and files that arguments name are in them.
fn finds_its_volumes(overlay: &Overlay, name: &str, workload: &Value) {
    let mut volumes = names(&pod(workload)["volumes"]);
    let claims = workload["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    volumes.extend(claims.map(|claim| claim["metadata"]["name"].as_str().unwrap()));
    let container = container(workload);
    let mut folders = BTreeMap::new();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        assert!(volumes.contains(mount["name"].as_str().unwrap()), "{name}: {mount}");
        folders.insert(mount["mountPath"].as_str().unwrap(), mount["name"].as_str().unwrap());
    }
    assert_eq!(volumes.len(), folders.len(), "{name}");
    let probe = strings(&container["startupProbe"]["exec"]["command"]);
    let arguments = strings(&container["args"]);
    let values = arguments.iter().filter_map(|argument| Some(argument.split_once('=')?.1));
    for file in values.chain(probe).filter(|value| value.starts_with('/')) {
        if folders.contains_key(file) {
            continue;
        }
        let (folder, file) = file.rsplit_once('/').unwrap();
        let volumes = pod(workload)["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == folders[folder]).unwrap();
        let map = overlay.of_kind("ConfigMap")[volume["configMap"]["name"].as_str().unwrap()];
        assert!(map["data"][file].is_string(), "{name} has no {folder}/{file}");
    }
}

fn is_probed(name: &str, workload: &Value) {
    let container = container(workload);
    let ports = names(&container["ports"]);
    for (probe, path) in [("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["path"].as_str().unwrap().split('?').next(), Some(path), "{name}");
        assert!(ports.contains(get["port"].as_str().unwrap()), "{name}");
    }
}

fn takes_its_flags(overlay: &Overlay, name: &str, workload: &Value) {
    let arguments = arguments(overlay, workload);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let compose = yaml("compose/scale-out.yml");
    let image = &container(workload)["image"];
    if *image == compose["services"]["root-a"]["image"] {
        return thanos_takes(&arguments);
    }
    assert_eq!(*image, compose["services"]["shard-0-writer"]["image"], "{name}");
    server_takes(&arguments);
    // A deployment would wait for a standby to become ready.
    let is_writer = flag(&arguments, "--mode") == Some("standby");
    assert_eq!(workload["kind"] == "StatefulSet", is_writer, "{name}");
    assert_eq!(workload["spec"]["podManagementPolicy"] == "Parallel", is_writer, "{name}");
    let has_standby = is_writer && workload["spec"]["replicas"] != 1;
    assert_eq!(workload["spec"]["updateStrategy"]["type"] == "OnDelete", has_standby, "{name}");
    assert_eq!(pod(workload)["terminationGracePeriodSeconds"] == 60, is_writer, "{name}");
    let ready = container(workload)["readinessProbe"]["httpGet"]["path"].as_str().unwrap();
    assert_eq!(ready.ends_with("?for=writes"), is_writer, "{name}");
}

#[test]
fn a_single_node_is_complete() {
    let Some(overlay) = Overlay::build("single") else { return };
    check(&overlay);
    assert_eq!(overlay.workloads().keys().collect::<Vec<_>>(), [&"writer"]);
}

#[test]
fn a_store_with_readers_is_complete() {
    let Some(overlay) = Overlay::build("with-readers") else { return };
    check(&overlay);
    let workloads = overlay.workloads();
    assert_eq!(workloads.keys().collect::<Vec<_>>(), [&"readers", &"writer"]);
    let stores = workloads.values().map(|workload| arguments(&overlay, workload)[0].clone());
    assert_eq!(
        BTreeSet::from_iter(stores),
        BTreeSet::from(["--storage.url=s3://metrics".to_owned()])
    );
    assert!(overlay.of_kind("Service").contains_key("readers"));
}

#[test]
fn shards_are_complete() {
    let Some(overlay) = Overlay::build("scale-out") else { return };
    check(&overlay);
    let workloads = overlay.workloads();
    let services = overlay.of_kind("Service");
    let maps = overlay.of_kind("ConfigMap");
    let map = maps.iter().find(|(name, _)| name.starts_with("thanos-")).unwrap().1;
    let shards: Value =
        serde_saphyr::from_str(map["data"]["shards.yml"].as_str().unwrap()).unwrap();
    let mut stores = BTreeSet::new();
    for (shard, endpoint) in shards["endpoints"].as_array().unwrap().iter().enumerate() {
        let (host, port) = endpoint["address"].as_str().unwrap().split_once(':').unwrap();
        // A service without an address: its name resolves to the readers.
        assert_eq!(services[host]["spec"]["clusterIP"], "None", "{host}");
        let ports = services[host]["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|open| open["port"].as_u64() == port.parse().ok()), "{host}");
        for node in ["writer", "readers"] {
            let arguments = arguments(&overlay, workloads[&*format!("shard-{shard}-{node}")]);
            let label = format!("--external-label=shard={shard}");
            assert!(arguments.contains(&label), "{arguments:?}");
            stores.insert((shard, arguments[0].clone()));
        }
    }
    let expected = [0, 1].map(|shard| (shard, format!("--storage.url=s3://metrics/shard-{shard}")));
    assert_eq!(stores, BTreeSet::from(expected));
    let remote_write = map["data"]["remote-write.yml"].as_str().unwrap();
    assert!(
        remote_write.contains("http://shard-0-writer:9090/")
            && services.contains_key("shard-0-writer")
    );
}
