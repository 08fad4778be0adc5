// The grpc-java client of tests/clients, on netty or okhttp. See tests/clients/contract.md for its
// arguments, commands and results.

import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.protobuf.ProtoUtils;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** One channel, and the commands that concern calls in flight. */
public final class Client {
  private static final String SERVICE = "envoy.service.ratelimit.v3.RateLimitService";

  private final Channel channel;
  private final boolean gzip;
  private final Descriptor request;
  private final MethodDescriptor<Message, Message> method;
  private final CompletableFuture<Void> cancelled = new CompletableFuture<>();
  private volatile boolean stopped;

  private Client(Map<String, String> options) throws Exception {
    channel = channel(options);
    gzip = number(options, "gzip") == 1;
    var set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(options.get("descriptors"))));
    var file = new ProtoFiles(set).get("envoy/service/ratelimit/v3/rls.proto");
    var found = file.findServiceByName("RateLimitService").findMethodByName("ShouldRateLimit");
    request = found.getInputType();
    method =
        MethodDescriptor.<Message, Message>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName(SERVICE + "/ShouldRateLimit")
            .setRequestMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(request)))
            .setResponseMarshaller(
                ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(found.getOutputType())))
            .build();
  }

  public static void main(String[] arguments) throws Exception {
    var client = new Client(words(String.join(" ", arguments)));
    var batches = new ArrayList<Thread>();
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (var line = lines.readLine(); line != null; line = lines.readLine()) {
      switch (line) {
        case "stop" -> client.stopped = true;
        case "cancel" -> client.cancelled.complete(null);
        default -> {
          var batch = client.new Batch(words(line));
          batches.add(new Thread(batch::run));
          batches.get(batches.size() - 1).start();
        }
      }
    }
    for (var batch : batches) {
      batch.join();
    }
    System.exit(0);
  }

  private static Channel channel(Map<String, String> options) throws Exception {
    ChannelCredentials credentials = InsecureChannelCredentials.create();
    if (options.containsKey("ca")) {
      var tls = TlsChannelCredentials.newBuilder().trustManager(new File(options.get("ca")));
      if (options.containsKey("cert")) {
        tls.keyManager(new File(options.get("cert")), new File(options.get("key")));
      }
      credentials = tls.build();
    }
    var address = options.get("address");
    ManagedChannelBuilder<?> builder =
        options.get("transport").equals("okhttp")
            ? OkHttpChannelBuilder.forTarget(address, credentials)
            : NettyChannelBuilder.forTarget(address, credentials);
    if (options.containsKey("keepalive-ms")) {
      builder
          .keepAliveTime(number(options, "keepalive-ms"), TimeUnit.MILLISECONDS)
          .keepAliveTimeout(20, TimeUnit.SECONDS)
          .keepAliveWithoutCalls(true);
    }
    return builder.build();
  }

  /** The calls of one command. A call that ends begins the next one. */
  private final class Batch {
    private final String name;
    private final long calls;
    private final long atOnce;
    private final CountDownLatch callers;
    private final Message message;
    private final long deadlineMs;
    private final String metadata;
    private final boolean cancel;
    private final Map<String, Long> failed = new TreeMap<>();
    private long begun;
    private long answered;
    private long incomplete;
    private String first = "";

    Batch(Map<String, String> command) {
      name = command.get("name");
      calls = number(command, "calls");
      atOnce = number(command, "at-once");
      callers = new CountDownLatch((int) atOnce);
      message = requestOf((int) number(command, "value-bytes"));
      deadlineMs = number(command, "deadline-ms");
      metadata = "X".repeat((int) number(command, "metadata-bytes"));
      cancel = number(command, "cancel") == 1;
    }

    void run() {
      for (var caller = 0; caller < atOnce; caller++) {
        begin();
      }
      try {
        callers.await();
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
      print();
    }

    private synchronized void print() {
      var statuses =
          failed.entrySet().stream()
              .map(entry -> text(entry.getKey()) + ":" + entry.getValue())
              .collect(Collectors.joining(","));
      System.out.println(
          "{\"name\":%s,\"answered\":%d,\"incomplete\":%d,\"failed\":{%s},\"first\":%s}"
              .formatted(text(name), answered, incomplete, statuses, text(first)));
    }

    private void begin() {
      synchronized (this) {
        if (stopped || (calls > 0 && begun == calls)) {
          callers.countDown();
          return;
        }
        begun++;
      }
      var options = CallOptions.DEFAULT;
      if (deadlineMs > 0) {
        options = options.withDeadlineAfter(deadlineMs, TimeUnit.MILLISECONDS);
      }
      if (gzip) {
        options = options.withCompression("gzip");
      }
      var headers = new Metadata();
      if (!metadata.isEmpty()) {
        headers.put(Metadata.Key.of("x-long", Metadata.ASCII_STRING_MARSHALLER), metadata);
      }
      var call = channel.newCall(method, options);
      call.start(
          new ClientCall.Listener<>() {
            private Message answer;

            @Override
            public void onMessage(Message message) {
              answer = message;
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
              count(status, answer);
              begin();
            }
          },
          headers);
      call.request(2);
      call.sendMessage(message);
      call.halfClose();
      if (cancel) {
        cancelled.thenRun(() -> call.cancel("by command", null));
      }
    }

    private synchronized void count(Status status, Message answer) {
      if (!status.isOk()) {
        failed.merge(status.getCode().name(), 1L, Long::sum);
        first = first.isEmpty() ? status.toString() : first;
      } else if (answer != null && complete(answer)) {
        answered++;
      } else {
        incomplete++;
      }
    }
  }

  /** Three descriptors: one with a limit, one over its limit, one without a rule. */
  private Message requestOf(int valueBytes) {
    var builder = DynamicMessage.newBuilder(request);
    builder.setField(request.findFieldByName("domain"), "clients");
    var descriptors = request.findFieldByName("descriptors");
    var entries = descriptors.getMessageType().findFieldByName("entries");
    var names = entries.getMessageType();
    for (var pair :
        new String[][] {
          {"open", "v".repeat(Math.max(1, valueBytes))}, {"closed", "v"}, {"unknown", "v"}
        }) {
      var entry = DynamicMessage.newBuilder(names);
      entry.setField(names.findFieldByName("key"), pair[0]);
      entry.setField(names.findFieldByName("value"), pair[1]);
      var descriptor = DynamicMessage.newBuilder(descriptors.getMessageType());
      descriptor.addRepeatedField(entries, entry.build());
      builder.addRepeatedField(descriptors, descriptor.build());
    }
    return builder.build();
  }

  /** One status a descriptor, in their order: OK, OVER_LIMIT, OK. */
  private static boolean complete(Message answer) {
    var codes = new ArrayList<Integer>();
    for (var status : (List<?>) field(answer, "statuses")) {
      codes.add(((EnumValueDescriptor) field((Message) status, "code")).getNumber());
    }
    if (((EnumValueDescriptor) field(answer, "overall_code")).getNumber() != 2
        || !codes.equals(List.of(1, 2, 1))) {
      return false;
    }
    var status = (Message) ((List<?>) field(answer, "statuses")).get(0);
    var limit = (Message) field(status, "current_limit");
    return field(limit, "requests_per_unit").equals(1_000_000_000);
  }

  private static Object field(Message message, String name) {
    FieldDescriptor field = message.getDescriptorForType().findFieldByName(name);
    return message.getField(field);
  }

  /** Builds the files of a set, each after those that it imports. */
  private static final class ProtoFiles {
    private final Map<String, FileDescriptorProto> read = new HashMap<>();
    private final Map<String, FileDescriptor> built = new HashMap<>();

    ProtoFiles(FileDescriptorSet set) {
      set.getFileList().forEach(file -> read.put(file.getName(), file));
    }

    FileDescriptor get(String name) throws Exception {
      if (!built.containsKey(name)) {
        var file = read.get(name);
        var imports = new ArrayList<FileDescriptor>();
        for (var other : file.getDependencyList()) {
          imports.add(get(other));
        }
        built.put(name, FileDescriptor.buildFrom(file, imports.toArray(FileDescriptor[]::new)));
      }
      return built.get(name);
    }
  }

  private static Map<String, String> words(String line) {
    var found = new HashMap<String, String>();
    for (var word : line.split(" ")) {
      var parts = word.split("=", 2);
      found.put(parts[0], parts.length > 1 ? parts[1] : "");
    }
    return found;
  }

  private static long number(Map<String, String> words, String name) {
    return Long.parseLong(words.getOrDefault(name, "0"));
  }

  private static String text(String given) {
    var escaped = new StringBuilder("\"");
    for (var letter : given.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        escaped.append('\\').append(letter);
      } else {
        escaped.append(letter < ' ' ? ' ' : letter);
      }
    }
    return escaped.append('"').toString();
  }
}
