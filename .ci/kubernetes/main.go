// Program kubernetes builds an overlay of kustomize and decodes every object strictly into the types of
// Kubernetes.
//
// The argument is the folder of the overlay. It prints each object as a line of JSON, and fails on fields
// that the types lack, on values of other types, and on kinds outside of its list.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// kinds are the objects that the manifests may have, by version and kind.
var kinds = map[string]func() any{
	"apps/v1/Deployment":                 func() any { return new(appsv1.Deployment) },
	"apps/v1/StatefulSet":                func() any { return new(appsv1.StatefulSet) },
	"policy/v1/PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
	"v1/ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1/Namespace":                       func() any { return new(corev1.Namespace) },
	"v1/Service":                         func() any { return new(corev1.Service) },
	"v1/ServiceAccount":                  func() any { return new(corev1.ServiceAccount) },
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes FOLDER")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// check builds an overlay and prints its objects.
func check(folder string) error {
	builder := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	built, err := builder.Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return err
	}
	output := json.NewEncoder(os.Stdout)
	for _, resource := range built.Resources() {
		name := resource.GetApiVersion() + "/" + resource.GetKind()
		kind, known := kinds[name]
		if !known {
			return fmt.Errorf("%s: the kind %s is not in the list of this program", resource.GetName(), name)
		}
		text, err := resource.AsYAML()
		if err != nil {
			return err
		}
		object := kind()
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			return fmt.Errorf("%s %s: %w", name, resource.GetName(), err)
		}
		if err := output.Encode(object); err != nil {
			return err
		}
	}
	return nil
}
