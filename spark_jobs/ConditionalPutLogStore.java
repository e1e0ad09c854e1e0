package fieldgate;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * Delta's commits on S3 by conditional puts (If-None-Match: *): of several writers of one version one succeeds.
 *
 * Delta's own log store for S3 asks whether the file is there and then writes it, which is safe within one process only.
 * A put whose answer was lost is sent again by the SDK and refused then, by itself: so a refused one is compared with
 * what is there. A commit names its transaction; two never hold the same bytes.
 */
public class ConditionalPutLogStore extends HadoopFileSystemLogStore {
  private static final int CONFLICT = 409; // Another put of the same name is under way.
  private static final int PRECONDITION_FAILED = 412;
  private static final int TRIES = 5;

  public ConditionalPutLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    StringBuilder text = new StringBuilder();
    actions.forEachRemaining(action -> text.append(action).append('\n'));
    byte[] content = text.toString().getBytes(StandardCharsets.UTF_8);
    S3AFileSystem files = (S3AFileSystem) path.getFileSystem(configuration);
    Path place = files.makeQualified(path);
    PutObjectRequest.Builder request =
        PutObjectRequest.builder().bucket(files.getBucket()).key(files.pathToKey(place));
    if (!overwrite) {
      request.ifNoneMatch("*");
    }
    S3Client client = files.getS3AInternals().getAmazonS3Client("Delta log");
    for (int attempt = 1; ; attempt++) {
      try {
        client.putObject(request.build(), RequestBody.fromBytes(content));
        return;
      } catch (S3Exception error) {
        if (error.statusCode() == PRECONDITION_FAILED) {
          if (Arrays.equals(content, bytesOf(files, place))) {
            return;
          }
          throw new FileAlreadyExistsException(path.toString());
        }
        if (error.statusCode() != CONFLICT || attempt == TRIES) {
          throw new IOException("writing " + path + ": " + error.getMessage(), error);
        }
      } catch (SdkException error) {
        throw new IOException("writing " + path + ": " + error.getMessage(), error);
      }
    }
  }

  private static byte[] bytesOf(FileSystem files, Path path) throws IOException {
    try (var stream = files.open(path)) {
      return stream.readAllBytes();
    }
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return false;
  }
}
