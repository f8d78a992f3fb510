// Command fake-gcs-server serves an emulator of Google Cloud Storage in memory, with one bucket:
//
//	fake-gcs-server 127.0.0.1:4443 BUCKET
//
// The emulator accepts uploads only by the JSON API, but the client of Tessella uses the XML API. So
// requests that change or list objects are translated; all others are forwarded.
package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const (
	generationMatch = "X-Goog-If-Generation-Match"
	generation      = "X-Goog-Generation"
	copySource      = "X-Goog-Copy-Source"
	metadataPrefix  = "X-Goog-Meta-"
)

// xmlServer translates requests of the XML API.
type xmlServer struct {
	server *fakestorage.Server
	bucket string

	mutex   sync.Mutex
	uploads map[string]*upload
}

// upload is an incomplete multipart upload.
type upload struct {
	parts    map[int][]byte
	metadata map[string]string
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: fake-gcs-server ADDRESS BUCKET")
	}
	address, bucket := os.Args[1], os.Args[2]
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true,
		PublicHost: address,
	})
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	handler := &xmlServer{server: server, bucket: bucket, uploads: map[string]*upload{}}
	log.Fatal(http.ListenAndServe(address, handler))
}

func (s *xmlServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	object, isObject := strings.CutPrefix(path, s.bucket+"/")
	query := r.URL.Query()
	id := query.Get("uploadId")
	switch {
	case path == s.bucket && r.Method == http.MethodGet:
		s.list(w, query)
	case !isObject:
		s.server.HTTPHandler().ServeHTTP(w, r)
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.begin(w, r)
	case id != "":
		s.proceed(w, r, object, id)
	case r.Method == http.MethodPut && r.Header.Get(copySource) != "":
		s.copy(w, r, object)
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.put(w, object, body, metadataOf(r), r.Header.Get(generationMatch))
	default:
		s.server.HTTPHandler().ServeHTTP(w, r)
	}
}

// metadataOf returns the metadata of the object in a request.
func metadataOf(r *http.Request) map[string]string {
	metadata := map[string]string{}
	for name, values := range r.Header {
		if key, ok := strings.CutPrefix(name, metadataPrefix); ok {
			metadata[strings.ToLower(key)] = values[0]
		}
	}
	return metadata
}

// upload sends an object to the emulator, on condition of its generation: 0 for an absent object,
// empty without a condition.
func (s *xmlServer) upload(
	object string, content []byte, metadata map[string]string, match string,
) *httptest.ResponseRecorder {
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	// Writes to memory do not fail.
	described, _ := json.Marshal(map[string]any{"name": object, "metadata": metadata})
	part, _ := writer.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json"}})
	part.Write(described)
	part, _ = writer.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/octet-stream"}})
	part.Write(content)
	writer.Close()
	query := url.Values{"uploadType": {"multipart"}, "name": {object}}
	if match != "" {
		query.Set("ifGenerationMatch", match)
	}
	target := fmt.Sprintf("/upload/storage/v1/b/%s/o?%s", s.bucket, query.Encode())
	request := httptest.NewRequest(http.MethodPost, target, &body)
	request.Header.Set("Content-Type", "multipart/related; boundary="+writer.Boundary())
	answer := httptest.NewRecorder()
	s.server.HTTPHandler().ServeHTTP(answer, request)
	return answer
}

// stored responds with the entity tag and the generation of an upload, or with its error.
func stored(w http.ResponseWriter, answer *httptest.ResponseRecorder) (string, bool) {
	var object struct {
		Etag       string `json:"etag"`
		Generation string `json:"generation"`
	}
	if answer.Code != http.StatusOK {
		http.Error(w, answer.Body.String(), answer.Code)
		return "", false
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &object); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return "", false
	}
	tag := strconv.Quote(strings.Trim(object.Etag, `"`))
	w.Header().Set("ETag", tag)
	w.Header().Set(generation, object.Generation)
	return tag, true
}

func (s *xmlServer) put(
	w http.ResponseWriter, object string, content []byte, metadata map[string]string, match string,
) {
	if _, ok := stored(w, s.upload(object, content, metadata, match)); ok {
		w.WriteHeader(http.StatusOK)
	}
}

func (s *xmlServer) copy(w http.ResponseWriter, r *http.Request, object string) {
	source, err := url.PathUnescape(strings.TrimPrefix(r.Header.Get(copySource), "/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	from, err := s.server.GetObject(s.bucket, strings.TrimPrefix(source, s.bucket+"/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s.put(w, object, from.Content, from.Metadata, r.Header.Get(generationMatch))
}

func (s *xmlServer) begin(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	id := fmt.Sprintf("upload-%d", len(s.uploads)+1)
	s.uploads[id] = &upload{parts: map[int][]byte{}, metadata: metadataOf(r)}
	writeXML(w, struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}{UploadID: id})
}

// proceed adds a part to an upload, completes it, or aborts it.
func (s *xmlServer) proceed(w http.ResponseWriter, r *http.Request, object, id string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	begun := s.uploads[id]
	if begun == nil || begun.parts == nil {
		http.Error(w, "no such upload", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		begun.parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf(`"part-%d"`, number))
	case http.MethodDelete:
		begun.parts = nil
		w.WriteHeader(http.StatusNoContent)
	default:
		var content []byte
		for number := 1; number <= len(begun.parts); number++ {
			content = append(content, begun.parts[number]...)
		}
		tag, ok := stored(w, s.upload(object, content, begun.metadata, ""))
		if !ok {
			return
		}
		begun.parts = nil
		writeXML(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			ETag    string
		}{ETag: tag})
	}
}

// entry is an object in a listing.
type entry struct {
	Key          string
	Generation   int64
	LastModified string
	ETag         string
	Size         int64
}

func (s *xmlServer) list(w http.ResponseWriter, query url.Values) {
	listed, err := s.server.ListObjectsWithOptionsPaginated(s.bucket, fakestorage.ListOptions{
		Prefix:    query.Get("prefix"),
		Delimiter: query.Get("delimiter"),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	type prefix struct{ Prefix string }
	var result struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		Contents       []entry
		CommonPrefixes []prefix
	}
	after := query.Get("start-after")
	for _, object := range listed.Objects {
		if object.Name > after {
			updated := object.Updated.UTC().Format(time.RFC3339Nano)
			tag := strconv.Quote(object.Etag)
			found := entry{object.Name, object.Generation, updated, tag, object.Size}
			result.Contents = append(result.Contents, found)
		}
	}
	for _, name := range listed.Prefixes {
		if name > after {
			result.CommonPrefixes = append(result.CommonPrefixes, prefix{name})
		}
	}
	writeXML(w, result)
}

func writeXML(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}
